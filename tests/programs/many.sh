#!/bin/sh
# Short processes, one after the other: many.sh COUNT COMMAND...
count=$1
shift
while [ "$count" -gt 0 ]; do
	"$@"
	count=$((count - 1))
done
