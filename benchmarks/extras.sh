#!/bin/sh
# Installs a wheel with each extra into a fresh environment and prints how much each adds, in MiB on disk.
#   benchmarks/extras.sh dist/fleetlab-0.2.0-py3-none-any.whl
set -eu
wheel=$1 folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT

size() {  # EXTRA [REQUIREMENT…]: MiB of the packages that an environment with them has, without pip
    extra=$1 && shift
    python3 -m venv --without-pip "$folder/env"
    python3 -m pip --python "$folder/env/bin/python" install --quiet --disable-pip-version-check "$wheel$extra" "$@" >&2
    du -sm "$folder/env" | cut -f1
    rm -rf "$folder/env"
}

base=$(size "")
echo "no extra $base"
for extra in web k8s watch tune forecast optimize dist pandas notebooks; do
    echo "$extra +$(($(size "[$extra]") - base))"
done
echo "bench with the CPU build of torch +$(($(size "[bench]" torch==2.13.0) - base))"
