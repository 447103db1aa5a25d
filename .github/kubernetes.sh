#!/usr/bin/env bash
# Kubernetes' own programs, of a version, into a folder: for `--control-plane` and `PLUMBLINE_KUBE_API`.
#
#   .github/kubernetes.sh v1.36.3 target/kubernetes
#
# Each is compared with the checksum that is published beside it.
set -euo pipefail
version=${1:?expected a version, for example v1.36.3}
folder=${2:?expected a folder}
case $(uname -m) in
x86_64) architecture=amd64 ;;
aarch64) architecture=arm64 ;;
*)
  echo "expected x86_64 or aarch64, found $(uname -m): Kubernetes' own builds are of these" >&2
  exit 2
  ;;
esac
etcd=v3.6.8 # of the minor version that Kubernetes 1.34 and later are tested with; earlier ones speak to it the same way
fetch() { curl --fail --silent --show-error --location --retry 3 "$@"; }
mkdir -p "$folder"
for program in kube-apiserver kube-controller-manager kube-proxy kubectl; do
  address=https://dl.k8s.io/release/$version/bin/linux/$architecture/$program
  fetch --output "$folder/$program" "$address"
  echo "$(fetch "$address.sha256")  $folder/$program" | sha256sum --check --quiet
  chmod 0755 "$folder/$program"
done
archive=etcd-$etcd-linux-$architecture
releases=https://github.com/etcd-io/etcd/releases/download/$etcd
fetch --output "$folder/$archive.tar.gz" "$releases/$archive.tar.gz"
fetch "$releases/SHA256SUMS" | (cd "$folder" && grep " $archive.tar.gz$" | sha256sum --check --quiet)
tar --extract --file "$folder/$archive.tar.gz" --directory "$folder" --strip-components 1 "$archive/etcd"
rm "$folder/$archive.tar.gz"
echo "Kubernetes $version and etcd $etcd are in $folder"
