# Each kind of target finds the program: a command, a control group (v2), the whole machine
# runs: vm
# needs: lightfoot, split
# timeout: 90
set -eu

# found FILE: its stacks have the function that the program spends its time in, under its callers.
found() {
	grep -q 'rotate;work_70' "$1" || { echo "$1 does not have rotate;work_70:"; head -n 20 "$1"; exit 1; }
}

lightfoot profile -F 199 -o command.folded -- split --seconds 2 > /dev/null
found command.folded

group=/sys/fs/cgroup/lightfoot-test
mkdir "$group"
sh -c "echo 0 > $group/cgroup.procs; exec split --seconds 60" > /dev/null &
inside=$!
# Its twin outside must not be seen.
split --seconds 60 > /dev/null &
outside=$!
trap 'kill "$inside" "$outside"; wait' EXIT
lightfoot profile -d 2s -F 199 -o group.json --cgroup "$group"
grep -q "\"pid\":$inside," group.json || { echo "the process in the group was not sampled"; exit 1; }
if grep -q "\"pid\":$outside," group.json; then echo "a process outside the group was sampled"; exit 1; fi

lightfoot profile -d 2s -F 199 -o machine.folded -a
found machine.folded
