#!/bin/busybox sh
# The first process of the machine: finds the host's files, and goes on in them.
b=/bin/busybox
$b mount -t proc proc /proc
$b mount -t sysfs sys /sys
$b mount -t devtmpfs dev /dev
for module in $($b cat /order); do $b insmod "/$module"; done
$b mount -t virtiofs -o ro root /host || { $b echo "machine: the host's files cannot be mounted"; $b poweroff -f; }
$b mount -t tmpfs -o size=75% written /written
$b mkdir /written/upper /written/work
$b mount -t overlay -o lowerdir=/host,upperdir=/written/upper,workdir=/written/work overlay /new
for folder in proc sys dev; do $b mount --move /$folder /new/$folder; done
script=$($b sed -n 's/.*machine\.script=\([^ ]*\).*/\1/p' /new/proc/cmdline)
exec $b switch_root /new /bin/sh "$script"
