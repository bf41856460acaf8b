# Every way to sample and to walk loads here, too: both clocks, waits, a budget, with bpf_loop and without
# runs: vm
# needs: lightfoot, split
# timeout: 120
set -eu

# ways OPTIONS: finds the function that the program spends its time in, under its callers.
ways() {
	# shellcheck disable=SC2086 # several options
	lightfoot -v profile -F 99 $1 -o out.folded -- split --seconds 1 > /dev/null || { echo "profile $1 failed"; exit 1; }
	grep -q 'rotate;work_70' out.folded || { echo "profile $1 does not have rotate;work_70:"; head -n 20 out.folded; exit 1; }
}

for loops in '' --plain-loops; do
	ways "--clock tick $loops"
	ways "--wall $loops"
	lightfoot profile --off-cpu --wakers $loops -o out.folded -- sleep 1 > /dev/null
	grep -q '\[sleeping\]' out.folded || { echo "nothing sleeps with --off-cpu $loops:"; head out.folded; exit 1; }
done
ways '--budget 50%'
