#!/usr/bin/env bash
# Installs the released programs `plumbline` and `reference-agent` of the version that a Cargo.toml has, once their sums and
# their origin were compared.
#
#   install.sh OWNER/NAME Cargo.toml
set -euo pipefail
repository=${1:?expected the repository, OWNER/NAME}
manifest=${2:?expected the Cargo.toml of the workspace}
version=$(sed -n 's/^version = "\(.*\)"$/\1/p' "$manifest")
folder=$(mktemp --directory)
programs=(plumbline reference-agent)
patterns=(--pattern SHA256SUMS)
for program in "${programs[@]}"; do patterns+=(--pattern "$program-$(uname -m)"); done
gh release download "v$version" --repo "$repository" --dir "$folder" "${patterns[@]}"
(cd "$folder" && sha256sum --check --ignore-missing SHA256SUMS)
for program in "${programs[@]}"; do
  gh attestation verify "$folder/$program-$(uname -m)" --repo "$repository"
  sudo install --mode 0755 "$folder/$program-$(uname -m)" "/usr/local/bin/$program"
done
rm -r "$folder"
plumbline --version
