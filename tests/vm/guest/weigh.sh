# Kernel probes that other kernels lack are weighed here: every row is there, and signs are right (xtask looks at weigh.json)
# runs: vm
# needs: lightfoot
# timeout: 200
set -eu

# In a machine without hardware virtualization times mean nothing, but a probe costs more than none.
lightfoot weigh --quick --probe kprobe,kretprobe,kprobe_multi,kretprobe_multi,kprobe_session,fentry,fexit,tp_btf -o weigh.json
lightfoot weigh --quick --probe fentry --program empty > weigh.txt
grep -q '^fentry sys_getppid' weigh.txt || { echo "no fentry in the table:"; cat weigh.txt; exit 1; }
