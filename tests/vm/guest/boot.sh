# The guest has what lightfoot's kernel side builds on: BTF, tracefs, bpffs, cgroup v2, kernel symbols
# runs: vm
# timeout: 20
set -eu
for path in /sys/kernel/btf/vmlinux /sys/kernel/tracing/events/sched /sys/fs/cgroup/cgroup.procs; do
	[ -e "$path" ] || { echo "missing: $path"; exit 1; }
done
grep -q ' bpf ' /proc/mounts || { echo "bpffs is not mounted"; exit 1; }
grep -q ' [tT] do_sys_openat2$' /proc/kallsyms || { echo "no kernel symbols"; exit 1; }
# What the running kernel of some machines lacks, and the reason for this layer.
grep -q kprobe /sys/bus/event_source/devices/kprobe/uevent 2> /dev/null \
	|| [ -d /sys/bus/event_source/devices/kprobe ] \
	|| { echo "no kprobe event source"; exit 1; }
nproc
