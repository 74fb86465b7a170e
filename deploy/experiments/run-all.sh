#!/usr/bin/env bash
# The whole suite over all modes of sharing, on one node of a cluster; the node is put back however it ends.
set -euo pipefail

usage() {
  cat <<'TEXT'
run-all.sh --node NODE [--modes "exclusive time-slicing mps"] [--minutes 60] [--plans ""] [--work resnet-infer]
           [--tenants 4] [--seconds 60] [--out measured] [--dry-run]

For each mode: switch the node, run the tenants as pods (alone where GPUs are exclusive), copy their results. Where GPUs are
whole, `fleetlab bench all` too, within --minutes: all its plans, or those of --plans. In the end `fleetlab bench analyze`
of these and one page of all tenants. --work may name several workloads, which the pods take in turn.
--modes may include mig, which partitions the GPUs of the node. --dry-run prints every command and runs none.

Examples:
  deploy/experiments/run-all.sh --node gpu-7 --dry-run
  deploy/experiments/run-all.sh --node gpu-7 --modes "exclusive mps" --out mps
  deploy/experiments/run-all.sh --node gpu-7 --work "resnet-train resnet-infer" --minutes 20
TEXT
}

node='' modes='exclusive time-slicing mps' plans='' minutes=60 work=resnet-infer tenants=4 seconds=60
out=measured dry='' poll=${POLL:-5} patience=${PATIENCE:-600} folder=run-$(date -u +%Y%m%d-%H%M%S)
# shellcheck source=deploy/experiments/cluster.sh
source "$(dirname "${BASH_SOURCE[0]}")/cluster.sh"

while [[ $# -gt 0 ]]; do
  case $1 in
    --help) usage && exit ;;
    --dry-run) dry=1 && shift ;;
    --node | --modes | --plans | --minutes | --work | --tenants | --seconds | --out)
      [[ $# -gt 1 ]] || fail "$1 needs a value"
      printf -v "${1#--}" '%s' "$2"
      shift 2
      ;;
    *) fail "no such option: $1" "run-all.sh --help" ;;
  esac
done
sensible
[[ $tenants =~ ^[1-9][0-9]{0,5}$ ]] || fail "not a number of tenants: $tenants"
[[ $plans =~ ^[A-Za-z0-9_,\ -]*$ ]] || fail "not names of plans: $plans" "fleetlab bench suite --help"
[[ $minutes =~ ^[1-9][0-9]?$|^1[01][0-9]$ ]] || fail "not a number of minutes: $minutes" "from 1 to 119: a job ends after two hours"

begin
lost=0
for mode in $modes; do
  say "mode: $mode"
  share "$mode"
  n=$tenants
  [[ $mode != exclusive ]] || n=1
  [[ $n -le $(slots "$mode") ]] || n=$(slots "$mode")
  job tenants "\"completions\":$n,\"parallelism\":$n" "name=$mode" "work=$work" "seconds=$seconds" || lost=$((lost + 1))
  if [[ $mode == exclusive ]]; then
    step kubectl --namespace "$namespace" delete job --all --ignore-not-found
    step kubectl apply --kustomize "$manifests/overlays/$mode/experiments"
    job suite "" "plans=${plans// /,}" "minutes=$minutes" || lost=$((lost + 1))
  fi
  collect
done
if [[ " $modes " == *" exclusive "* ]]; then
  step fleetlab bench analyze "$out/suite" --out "$out/analysis" || lost=$((lost + 1))
fi
pages "Tenants by mode"
[[ $lost -eq 0 ]] || { say "$lost jobs failed, or what they left cannot be analysed; what the others measured is in $out"; exit 1; }
say "results are in $out: report.html, and analysis/analysis.html of exclusive GPUs"
