#!/busybox sh
# The guest's first process, from the initramfs: lays the guest's own programs and a writable layer of memory over the
# host's read-only root, so that the guest sees the host's files and changes none, and runs the guest's script in it.
/busybox mount -t devtmpfs dev /dev
exec </dev/console >/dev/console 2>&1
die() { echo "init: $*"; /busybox poweroff -f; }

for module in /module-*.ko; do /busybox insmod "$module"; done
for share in root:/host extras:/extras; do
  /busybox mount -t 9p -o trans=virtio,version=9p2000.L,msize=512000,cache=loose,ro "${share%:*}" "${share#*:}" ||
    die "no share $share"
done
/busybox mount -t tmpfs -o mode=0755 memory /memory
/busybox mkdir /memory/upper /memory/work
/busybox mount -t overlay -o "lowerdir=/extras:/host,upperdir=/memory/upper,workdir=/memory/work,xino=off" root /guest ||
  die "no overlay on the host's root"
for folder in proc sys dev run; do /busybox mkdir -p "/guest/$folder"; done
/busybox mount -t proc proc /guest/proc
/busybox mount -t sysfs sys /guest/sys
/busybox mount --move /dev /guest/dev
/busybox mount -t tmpfs -o mode=0755 run /guest/run
/busybox mkdir -p /guest/dev/pts /guest/dev/shm
/busybox ln -s /proc/self/fd /guest/dev/fd
/busybox ln -s /proc/self/fd/0 /guest/dev/stdin
/busybox ln -s /proc/self/fd/1 /guest/dev/stdout
/busybox ln -s /proc/self/fd/2 /guest/dev/stderr
/busybox mount -t devpts devpts /guest/dev/pts
/busybox mount -t tmpfs -o mode=1777 shm /guest/dev/shm
exec /busybox switch_root /guest "$guest" || die "cannot start $guest"
