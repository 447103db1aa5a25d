#!/usr/bin/env bash
# Installs the released programs of the version that this action is of, once their checksums and provenance were verified.
#
#   install.sh OWNER/NAME
set -euo pipefail
repository=${1:?expected the repository, OWNER/NAME}
root=$(dirname "$0")/../../..
version=$(sed -n 's/^version = "\(.*\)"$/\1/p' "$root/Cargo.toml")
"$root/install.sh" --repository "$repository" --version "v$version"
