#!/usr/bin/env bash
# Acts like a scheduler on this machine: starts the same command in each task, with its own TF_CONFIG.
#   PORTS="31200 31201 31202" bash start_tasks.sh tfx-estimator run joined-cluster.yaml
set -euo pipefail
read -ra ports <<<"${PORTS:-31200 31201}"
addresses=$(printf ', "localhost:%d"' "${ports[@]}")
tasks=()
for index in "${!ports[@]}"; do
  TF_CONFIG="{\"cluster\": {\"worker\": [${addresses#, }]}, \"task\": {\"type\": \"worker\", \"index\": $index}}" "$@" &
  tasks+=($!)
done
trap 'kill "${tasks[@]}" 2>/dev/null || true' INT TERM
code=0
for task in "${tasks[@]}"; do wait "$task" || code=$?; done
exit "$code"
