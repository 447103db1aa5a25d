#!/usr/bin/env bash
# The summary of a run in Markdown, for the page of a workflow: of its report, or of why there is none. It succeeds either way:
# the step of the run has failed already, and a step about its report should not hide that.
#
#   summary.sh PROGRAM FOLDER
set -euo pipefail
program=${1:?expected the program plumbline}
folder=${2:?expected the folder of the run}
if [ -f "$folder/report.yaml" ]; then
  "$program" report "$folder/report.yaml" --markdown
else
  printf '**The run ended before it wrote a report.** The log of its step says why'
  if [ -d "$folder/evidence" ]; then
    printf '; the artefact has the evidence of the cases that had begun'
  fi
  printf '.\n'
fi
