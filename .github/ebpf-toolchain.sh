#!/usr/bin/env bash
# What `cargo xtask ebpf build` and `check` need beyond Rust: the sources of the standard library, and bpf-linker with LLVM
# of the compiler's major version in it. On Debian and Ubuntu; where their archives lack that LLVM, LLVM's own is added.
set -euo pipefail
cd "$(dirname "$0")/.."
linker=0.13.0 # the version that xtask asks for
key=6084F3CF814B57C1CF12EFD515CF4D18AF4F7421 # "Sylvestre Ledru - Debian LLVM packages"
rustup component add rust-src
if [ "$(bpf-linker --version 2>/dev/null)" = "bpf-linker $linker" ]; then exit; fi
sudo apt-get update --quiet
llvm=$(rustc --version --verbose | sed -n 's/^LLVM version: \([0-9]*\).*/\1/p')
if [ -z "$(apt-cache madison "llvm-$llvm-dev")" ]; then
  codename=$(sed -n 's/^VERSION_CODENAME=//p' /etc/os-release)
  ring=$(mktemp --directory)
  curl --fail --silent --show-error --location https://apt.llvm.org/llvm-snapshot.gpg.key | gpg --homedir "$ring" --quiet --import
  gpg --homedir "$ring" --export "$key" | sudo tee /usr/share/keyrings/llvm.gpg >/dev/null
  rm -r "$ring"
  echo "deb [signed-by=/usr/share/keyrings/llvm.gpg] https://apt.llvm.org/$codename/ llvm-toolchain-$codename-$llvm main" |
    sudo tee /etc/apt/sources.list.d/llvm.list
  sudo apt-get update --quiet
fi
sudo apt-get install --yes --quiet --no-install-recommends "llvm-$llvm-dev" libzstd-dev zlib1g-dev
libraries=/usr/lib/$(gcc -print-multiarch)
LLVM_PREFIX=/usr/lib/llvm-$llvm LIBZSTD_PATH=$libraries ZLIB_PATH=$libraries \
  cargo install bpf-linker --version "$linker" --locked --force --no-default-features --features "llvm-$llvm,llvm-link-static"
