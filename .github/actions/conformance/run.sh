#!/usr/bin/env bash
# Runs the suite against TARGET, with ARGUMENTS, one on each line, for at most MINUTES. Reports and evidence go to a folder that
# no other run has; the step's outputs are the folder, and a name for the artefact that no other call, job or attempt has.
set -euo pipefail
folder=$(mktemp --directory "${RUNNER_TEMP:-${TMPDIR:-/tmp}}/plumbline-${GITHUB_JOB:-local}-${GITHUB_RUN_ATTEMPT:-1}-XXXXXX")
printf 'folder=%s\nname=%s\n' "$folder" "$(basename "$folder")" >>"${GITHUB_OUTPUT:-/dev/stderr}"
arguments=()
while IFS= read -r argument; do
  [ -z "$argument" ] || arguments+=("$argument")
done <<<"${ARGUMENTS:-}"
# sudo gives a program another environment: what says where programs, clusters and Docker are is told it.
if [ -z "${KUBECONFIG:-}" ] && [ -f "$HOME/.kube/config" ]; then export KUBECONFIG="$HOME/.kube/config"; fi
kept=()
for name in $(compgen -e); do
  case $name in
  PATH | KUBECONFIG | DOCKER_* | KIND_* | PLUMBLINE_*) kept+=("$name=${!name}") ;;
  esac
done
# Interrupted, a run undoes what it did and writes its report; it has two minutes for that.
sudo env "${kept[@]}" timeout --signal INT --kill-after 2m "${MINUTES:-75}m" \
  plumbline run --target "$TARGET" --out "$folder" "${arguments[@]}"
