#!/usr/bin/env bash
# Build the four images, the base first. ENGINE=podman takes another engine, TAG another tag.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/../.."
engine=${ENGINE:-docker} tag=${TAG:-0.2.0}
if ! command -v "$engine" >/dev/null; then
  printf 'error: not installed: %s\n\nhint: ENGINE=podman, or another that builds images\n' "$engine" >&2
  exit 2
fi
build=("$engine" build)
[[ $engine == docker ]] || build+=(--format docker) # the other format has no health checks

"${build[@]}" --file deploy/images/base.Dockerfile --tag "fleetlab-base:$tag" .
for image in training inference interactive; do
  "${build[@]}" --file "deploy/images/$image.Dockerfile" --build-arg "BASE=fleetlab-base:$tag" \
    --tag "fleetlab-$image:$tag" deploy/images
done
