# `lightfoot system-info` tries what this kernel can do, and answers in JSON
# runs: vm, here
# needs: lightfoot
# timeout: 60
set -eu
lightfoot system-info -f json > system-info.json
grep -q '"schema": *"lightfoot\.' system-info.json || { echo "no schema in system-info.json"; exit 1; }
