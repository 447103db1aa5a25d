#!/usr/bin/env bash
# An image, of both architectures by one name, pushed; what it prints are a step's outputs: its name, which registries want
# in lower case, and its digest.
#
#   .github/images.sh CONTAINERFILE REGISTRY/NAME v0.1.0 FOLDER_WITH_dist-x86_64_AND_OTHERS
set -euo pipefail
file=${1:?expected a Containerfile}
image=${2:?expected the name of the image}
image=${image,,}
tag=${3:?expected a tag}
parts=${4:?expected the folder of the artefacts}
images=()
for architecture in x86_64 aarch64; do
  case $architecture in
  x86_64) platform=amd64 ;;
  aarch64) platform=arm64 ;;
  esac
  # FROM scratch, and nothing is run: any machine builds it for any other.
  docker buildx build --platform "linux/$platform" --provenance=false --file "$file" \
    --tag "$image:$tag-$platform" --push "$parts/dist-$architecture" >&2
  images+=("$image:$tag-$platform")
done
docker buildx imagetools create --tag "$image:$tag" "${images[@]}" >&2
echo "image=$image"
echo "digest=$(docker buildx imagetools inspect "$image:$tag" --format '{{.Manifest.Digest}}')"
