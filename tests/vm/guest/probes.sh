# Every kind of probe counts exactly, those too that other kernels lack: kprobe, kretprobe, their multi and session forms, fentry, fexit
# runs: vm
# needs: tests:lightfoot-tests:probes, usdt, manyusdt, faults
# timeout: 240
set -eu
export LIGHTFOOT_PROGRAMS=/lightfoot/bin
# Sites are chosen by files, which are the same everywhere; this guest has few.
lightfoot-tests-probes --test-threads=1 --skip chosen 2>&1 | tee probes.log
grep -q '^test result: ok' probes.log || exit 1
for kind in kprobe kretprobe kprobe_multi kretprobe_multi kprobe_session fentry fexit; do
	if grep -q "^$kind: " probes.log; then
		echo "this kernel should have $kind:"
		grep "^$kind: " probes.log
		exit 1
	fi
done
