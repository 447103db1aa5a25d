#!/usr/bin/env bash
# Installs the released programs `plumbline` and `reference-agent`. Nothing is installed whose checksum or provenance differs.
set -euo pipefail

usage() {
  cat <<'END'
Installs the released programs plumbline and reference-agent of Plumbline, after verifying them.

Usage: install.sh --repository OWNER/NAME [OPTIONS]

  --repository OWNER/NAME   the repository on GitHub with the release
  --version v1.2.3          the release; without it the latest
  --to FOLDER               where the programs go; without it /usr/local/bin
  --sbom FOLDER             also write what the programs are made of (CycloneDX) there
  --checksums-only          do not verify by whom the files were built, which needs gh (GitHub's command line)

Environment: PLUMBLINE_RELEASES, a copy of the releases page, such as file:///mnt/releases for a network without GitHub; below
it are the folders download/VERSION and latest/download.

Exit codes: 0 installed; 1 a file is missing or is not what was released; 2 wrong options, or a program is missing.
END
}

fail() {
  local code=$1
  shift
  printf 'install.sh: %s\n' "$*" >&2
  exit "$code"
}

repository='' version='' to=/usr/local/bin sbom='' provenance=true
while [ $# -gt 0 ]; do
  case $1 in
  --repository | --version | --to | --sbom)
    [ $# -gt 1 ] || fail 2 "$1 needs a value; see install.sh --help"
    case $1 in
    --repository) repository=$2 ;;
    --version) version=$2 ;;
    --to) to=$2 ;;
    --sbom) sbom=$2 ;;
    esac
    shift 2
    ;;
  --checksums-only)
    provenance=false
    shift
    ;;
  -h | --help)
    usage
    exit 0
    ;;
  *) fail 2 "unknown option $1; see install.sh --help" ;;
  esac
done
[[ $repository =~ ^[A-Za-z0-9_.-]+/[A-Za-z0-9_.-]+$ ]] ||
  fail 2 "expected --repository OWNER/NAME, found \"$repository\""
[[ -z $version || $version =~ ^v[0-9]+\.[0-9]+\.[0-9]+ ]] ||
  fail 2 "expected a --version such as v1.2.3, found \"$version\""
[ "$(uname -s)" = Linux ] || fail 2 "the programs run on Linux, this is $(uname -s): use the image, or a virtual machine"
architecture=$(uname -m)
case $architecture in
x86_64 | aarch64) ;;
*) fail 2 "there are programs for x86_64 and aarch64, this machine is $architecture: build from source (README.md)" ;;
esac
for program in curl sha256sum; do
  command -v "$program" >/dev/null || fail 2 "$program is needed: install it, and try again"
done
if $provenance && ! command -v gh >/dev/null; then
  fail 2 "gh is needed to verify by whom the files were built: install it (and gh auth login), or pass --checksums-only"
fi

releases=${PLUMBLINE_RELEASES:-https://github.com/$repository/releases}
if [ -n "$version" ]; then from=$releases/download/$version; else from=$releases/latest/download; fi
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
get() {
  echo "fetching $1" >&2
  curl --fail --silent --show-error --location --retry 3 --max-time 600 --output "$folder/$1" "$from/$1" ||
    fail 1 "failed to fetch $from/$1: is there such a release, and does this machine reach it?"
}
programs=("plumbline-$architecture" "reference-agent-$architecture")
files=("${programs[@]}")
[ -z "$sbom" ] || files+=(plumbline.cdx.json reference-agent.cdx.json lb-programs.cdx.json)
get SHA256SUMS
for file in "${files[@]}"; do
  get "$file"
  # A sum that is missing must not pass as one that is right.
  expected=$(awk -v file="$file" '$2 == file { print $1 }' "$folder/SHA256SUMS")
  found=$(sha256sum "$folder/$file" | cut -d ' ' -f 1)
  [ "$expected" = "$found" ] ||
    fail 1 "$file is not what was released: expected the SHA-256 ${expected:-(none in SHA256SUMS)}, found $found"
done
if $provenance; then
  for file in SHA256SUMS "${files[@]}"; do
    gh attestation verify "$folder/$file" --repo "$repository" >&2 ||
      fail 1 "$file was not built by a release of $repository: nothing was installed"
  done
fi

# Root only where the folder asks for it.
run=()
mkdir -p "$to" 2>/dev/null || true
[ -w "$to" ] || [ "$(id -u)" = 0 ] || run=(sudo)
${run[@]+"${run[@]}"} mkdir -p "$to"
for program in "${programs[@]}"; do
  ${run[@]+"${run[@]}"} install -m 0755 "$folder/$program" "$to/${program%"-$architecture"}"
done
if [ -n "$sbom" ]; then
  mkdir -p "$sbom"
  cp "$folder"/*.cdx.json "$sbom"
fi
echo "installed in $to: $("$to/plumbline" --version), and reference-agent" >&2
case :$PATH: in
*:"$to":*) ;;
*) echo "$to is not on the PATH: start $to/plumbline" >&2 ;;
esac
echo "next: sudo plumbline run --quick" >&2
