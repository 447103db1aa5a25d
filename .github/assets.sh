#!/usr/bin/env bash
# The files of a release, from the artefacts of its jobs: programs with their architecture in the name, what they are
# made of, the script that installs them, and one list of sums.
#
#   .github/assets.sh FOLDER_WITH_dist-x86_64_AND_OTHERS FOLDER
set -euo pipefail
parts=${1:?expected the folder of the artefacts}
assets=${2:?expected the folder to write}
mkdir -p "$assets"
for architecture in x86_64 aarch64; do
  (cd "$parts/dist-$architecture" && sha256sum --check --quiet SHA256SUMS)
  for program in plumbline reference-agent; do
    cp "$parts/dist-$architecture/$program" "$assets/$program-$architecture"
  done
done
cp "$(dirname "$0")/../install.sh" "$assets"
find "$parts/contents" -name '*.cdx.json' -exec cp {} "$assets" \;
(cd "$assets" && sha256sum -- * >SHA256SUMS && cat SHA256SUMS)
