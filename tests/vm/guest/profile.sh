# The same binary profiles a program whose split is known; the identity holds, kernel frames have names
# runs: vm, here
# needs: lightfoot, split
# timeout: 90
set -eu
split --seconds 60 > /dev/null &
user=$!
# A process that lives in the kernel.
dd if=/dev/zero of=/dev/null bs=64k 2> /dev/null &
kernel=$!
trap 'kill "$user" "$kernel"; wait' EXIT

code=0
lightfoot profile -d 5s -F 499 -f json -o profile.json -p "$user,$kernel" || code=$?
# 4: a privilege or a kernel feature is missing, said in one line.
[ "$code" = 4 ] && exit 77
exit "$code"
