#!/usr/bin/env bash
# More and more tenants in each mode until something breaks; the node is put back however it ends.
set -euo pipefail

usage() {
  cat <<'TEXT'
stress.sh --node NODE [--modes "exclusive time-slicing mps"] [--work resnet-infer] [--seconds 30] [--out stressed] [--dry-run]

Where GPUs are exclusive, `fleetlab bench stress` raises the tenants inside one pod and says what broke. Where they are shared,
1, 2, 4, … pods run at once, as many as the node has places; the first number with a pod that fails ends the mode.

Examples:
  deploy/experiments/stress.sh --node gpu-7 --dry-run
  deploy/experiments/stress.sh --node gpu-7 --modes mps --work llm-decode --out decoders
TEXT
}

node='' modes='exclusive time-slicing mps' work=resnet-infer seconds=30 out=stressed dry=''
poll=${POLL:-5} patience=${PATIENCE:-600} folder=stress-$(date -u +%Y%m%d-%H%M%S)
# shellcheck source=deploy/experiments/cluster.sh
source "$(dirname "${BASH_SOURCE[0]}")/cluster.sh"

while [[ $# -gt 0 ]]; do
  case $1 in
    --help) usage && exit ;;
    --dry-run) dry=1 && shift ;;
    --node | --modes | --work | --seconds | --out)
      [[ $# -gt 1 ]] || fail "$1 needs a value"
      printf -v "${1#--}" '%s' "$2"
      shift 2
      ;;
    *) fail "no such option: $1" "stress.sh --help" ;;
  esac
done
sensible

begin
for mode in $modes; do
  say "mode: $mode"
  share "$mode"
  if [[ $mode == exclusive ]]; then
    job stress "" "name=processes" "work=$work" || say "exclusive: the stress test itself failed"
    collect
    continue
  fi
  for ((n = 1; n <= $(slots "$mode"); n *= 2)); do
    step kubectl --namespace "$namespace" delete job --all --ignore-not-found
    step kubectl apply --kustomize "$manifests/overlays/$mode/experiments"
    if ! job tenants "\"completions\":$n,\"parallelism\":$n" "name=$mode-of-$n" "work=$work" "seconds=$seconds"; then
      say "$mode: breaks at $n pods"
      break
    fi
    [[ $dry ]] || say "$mode: $n pods are good"
  done
  collect
done
pages "More and more tenants"
say "all is in $out: report.html"
