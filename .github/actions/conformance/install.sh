#!/usr/bin/env bash
# Installs the released program `plumbline` of the version that a Cargo.toml has, once its sum and its origin were compared.
#
#   install.sh OWNER/NAME Cargo.toml
set -euo pipefail
repository=${1:?expected the repository, OWNER/NAME}
manifest=${2:?expected the Cargo.toml of the workspace}
version=$(sed -n 's/^version = "\(.*\)"$/\1/p' "$manifest")
folder=$(mktemp --directory)
gh release download "v$version" --repo "$repository" --dir "$folder" --pattern "plumbline-$(uname -m)" --pattern SHA256SUMS
(cd "$folder" && sha256sum --check --ignore-missing SHA256SUMS)
gh attestation verify "$folder/plumbline-$(uname -m)" --repo "$repository"
sudo install --mode 0755 "$folder/plumbline-$(uname -m)" /usr/local/bin/plumbline
rm -r "$folder"
plumbline --version
