#!/usr/bin/env bash
# Runs the suite against TARGET, with ARGUMENTS, one on each line; reports and evidence go to the folder `plumbline`.
set -euo pipefail
arguments=()
while IFS= read -r argument; do
  [ -z "$argument" ] || arguments+=("$argument")
done <<<"${ARGUMENTS:-}"
sudo plumbline run --target "$TARGET" --out plumbline "${arguments[@]}"
