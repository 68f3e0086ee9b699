#!/bin/sh
# The first process of a node of `testbed.node`, in namespaces of its own: gives the node its own /run, /var/lib and
# /var/log and, if it is beside others, its own view of the kernel and an uplink; then reaps all processes that the
# node's programs leave behind.
set -e
folder=$1 place=$2

own_view() {
  mount -t sysfs sysfs /sys
  mount -t tmpfs -o mode=0755 cgroups /sys/fs/cgroup
  while IFS=: read -r number controllers _; do
    if [ "$number" != 0 ]; then
      at="/sys/fs/cgroup/${controllers#name=}"
      mkdir -p "$at"
      case "$controllers" in
        name=*) mount -t cgroup -o "none,$controllers" cgroup "$at" ;;
        *) mount -t cgroup -o "$controllers" cgroup "$at" ;;
      esac
    elif [ "$(wc -l </proc/self/cgroup)" = 1 ]; then
      mount -t cgroup2 cgroup2 /sys/fs/cgroup
    fi
  done </proc/self/cgroup
}

# The other end of the node's link is in a namespace too, so that it is not an interface of the machine.
own_network() {
  ip link set lo up
  ip netns add outside
  ip link add uplink type veth peer name node netns outside
  ip -n outside address add 192.0.2.1/24 dev node
  ip -n outside link set node up
  ip address add 192.0.2.2/24 dev uplink
  ip link set uplink up
  ip route add default via 192.0.2.1
}

[ "$place" = alone ] || own_view
mkdir -p "$folder/run/netns" "$folder/lib" "$folder/log"
mount --bind "$folder/run" /run
mount --bind "$folder/lib" /var/lib
mount --bind "$folder/log" /var/log

# A kubelet sets these for the whole machine, unless they read as it wants them.
for setting in vm/overcommit_memory=1 vm/panic_on_oom=0 kernel/panic=10 kernel/panic_on_oops=1 \
  kernel/keys/root_maxkeys=1000000 kernel/keys/root_maxbytes=25000000; do
  shown="$folder/sysctl/${setting%=*}"
  mkdir -p "${shown%/*}"
  echo "${setting#*=}" >"$shown"
  mount --bind "$shown" "/proc/sys/${setting%=*}"
done

[ "$place" = alone ] || own_network
: >"$folder/ready"
# A shell that waits takes in every orphan that ends, not only its own children.
while :; do sleep 1000000 & wait; done
