#!/bin/bash
# The guest's script, started by init.sh as its first process: gets the machine ready (drivers, VFs), runs the command
# that `settings` in the shared folder names, leaves its exit code in `status` there, and powers off.
set -u
mount --make-rshared /
exec </dev/null >/dev/vport0p1 2>&1
# Without a shutdown of every device, which takes seconds; QEMU ends instead of a restart.
stop() { sync; echo b >/proc/sysrq-trigger; }
die() { echo "machine: $*"; stop; }
uptime() { cut -d' ' -f1 /proc/uptime; }
trap stop EXIT
export PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin

mkdir -p "$results" /run/tmp
mount -t 9p -o trans=virtio,version=9p2000.L,msize=512000 results "$results" || die "cannot mount $results"
# shellcheck source=/dev/null
set -a; . "$results/settings"; set +a
export TMPDIR=/run/tmp PATH="$PATH:/usr/local/sbin:/usr/sbin:/sbin"
mkdir -p /lib/modules
ln -sfn "$MODULES" "/lib/modules/$(uname -r)"
mount -t cgroup2 cgroup2 /sys/fs/cgroup
ip link set lo up
for net in /sys/bus/virtio/drivers/virtio_net/virtio*/net/*; do
  case $(cat "$net/address") in
    "$UPLINK_MAC") ip link set "${net##*/}" name uplink up || die "no uplink" ;;
    *) ip link set "${net##*/}" name vnic || die "no name for $net" ;;
  esac
done
ip address add 10.0.2.15/24 dev uplink || die "no address on the uplink"
hostname sriov-machine
echo "machine: kernel $(uname -r) up after $(uptime) s"

index=0
for pf in /sys/bus/pci/drivers/igb/0000:*/; do
  # By their slots, as udev names them: the kernel's names follow the order of discovery, and differ from boot to boot.
  ip link set "$(ls "$pf/net")" name "enp3s0f$index" || die "no name for $pf"
  # A VF asks its PF for leave to work, and a PF that is down never answers.
  ip link set "enp3s0f$index" up
  index=$((index + 1))
  cat "$pf/sriov_totalvfs" >"$pf/sriov_numvfs" || die "no VFs on $pf"
done
echo "machine: ready after $(uptime) s"

cd "$FOLDER" || die "no folder $FOLDER"
bash -c "$COMMAND"
echo $? >"$results/status"
dmesg >"$results/dmesg${suffix:-}.log"
echo "machine: done after $(uptime) s"
