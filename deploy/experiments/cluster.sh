# What run-all.sh and stress.sh have in common: one node of a cluster, switched from mode to mode and put back.
# Sourced, not run. Needs: node, out, folder, dry, poll (seconds between looks), patience (seconds of waiting).
# shellcheck shell=bash disable=SC2154

here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
manifests=$(cd "$here/../kubernetes" && pwd)
namespace=fleetlab-bench
longest=9000 # s that a job may take
replicas=4 # of a shared GPU, as in deploy/kubernetes/sharing

say() { printf '%s\n' "$*" >&2; }

fail() {
  say "error: $1"
  [[ $# -lt 2 ]] || { say ""; say "hint: $2"; }
  exit 2
}

# Show a command, and run it unless this is a dry run.
step() {
  say "+ $*"
  [[ $dry ]] || "$@"
}

label() { kubectl get node "$node" --output "jsonpath={.metadata.labels.$1}"; }

# Until a command says what it should; a cluster needs a while.
until_said() {
  local want=$1 said=
  shift
  say "+ until «$want»: $*"
  [[ $dry ]] && return
  for ((waited = 0; waited <= patience; waited += poll)); do
    said=$("$@") || said=
    [[ ${said:-0} == "$want" ]] && return
    sleep "$poll"
  done
  fail "after $patience s still «${said:-nothing}» and not «$want»: $*" "does the operator know fleetlab-sharing? docs/deploy.md"
}

allocatable() { kubectl get node "$node" --output "jsonpath={.status.allocatable.$1}"; }

# What the node was before; nothing is changed until this is known.
remember() {
  if [[ $dry ]]; then
    sharing_before='' mig_before='' cards=1
    return
  fi
  kubectl get node "$node" --output name >/dev/null || fail "no node by that name: $node" "kubectl get nodes"
  sharing_before=$(label 'nvidia\.com/device-plugin\.config')
  mig_before=$(label 'nvidia\.com/mig\.config')
  cards=$(label 'nvidia\.com/gpu\.count')
  [[ $cards =~ ^[1-9][0-9]*$ ]] || fail "the node $node has no label nvidia.com/gpu.count" "is the GPU operator there?"
}

# A label's value, or the word that takes the label off.
relabel() {
  if [[ $2 ]]; then step kubectl label node "$node" --overwrite "$1=$2"; else step kubectl label node "$node" "$1-"; fi
}

# Three times if need be: an API server may be away for a moment, and one thing that fails must not keep the next from it.
again() {
  local words=("$@")
  [[ $(type -t "$1") == function ]] || words=(step "$@")
  for _ in 1 2 3; do
    "${words[@]}" && return 0 # a bare return would give back what the script failed with
    sleep "$poll"
  done
  say "error: not put back, do it by hand: $*"
  [[ $status -ne 0 ]] || status=1
}

# However the script ends: the node as it was, and nothing running.
put_back() {
  local status=$?
  trap - EXIT
  set +e
  trap '' INT TERM HUP
  say "putting back"
  again kubectl --namespace "$namespace" delete job,pod --all --ignore-not-found --wait=false
  [[ ! $cut ]] || again relabel nvidia.com/mig.config "${mig_before:-all-disabled}"
  again relabel nvidia.com/device-plugin.config "$sharing_before"
  again relabel fleetlab/bench ""
  exit "$status"
}

# What was asked for, before anything is changed; these words go into patches and paths.
sensible() {
  local mode
  [[ $node ]] || fail "which node?" "--node NODE; kubectl get nodes --selector nvidia.com/gpu.present=true"
  [[ $node =~ ^[a-z0-9][a-z0-9.-]*$ ]] || fail "not the name of a node: $node" "kubectl get nodes"
  [[ $work =~ ^[A-Za-z0-9][A-Za-z0-9_.:-]*(\ [A-Za-z0-9][A-Za-z0-9_.:-]*)*$ ]] ||
    fail "not the name of a workload: $work" "fleetlab bench workload --help"
  [[ $seconds =~ ^[1-9][0-9]{0,5}$ ]] || fail "not a number of seconds: $seconds"
  [[ $modes =~ ^[a-z\ -]*[a-z]+[a-z\ -]*$ ]] || fail "which modes? «$modes»" "exclusive, time-slicing, mps, mig"
  for mode in $modes; do
    [[ -d $manifests/overlays/$mode ]] || fail "no mode by that name: $mode" "exclusive, time-slicing, mps, mig"
  done
  [[ $out && (! -e $out || -d $out) ]] || fail "not a folder: «$out»" "--out names a folder, there or not"
  [[ $poll =~ ^[1-9][0-9]*$ && $patience =~ ^(0|[1-9][0-9]*)$ ]] || fail "not seconds: POLL=$poll PATIENCE=$patience"
  [[ $dry ]] && return
  command -v kubectl >/dev/null || fail "kubectl is not installed" "--dry-run shows every command without it"
  command -v fleetlab >/dev/null || fail "fleetlab is not installed here" "it makes the pages in the end: pip install fleetlab"
}

begin() {
  cut=
  remember
  trap put_back EXIT
  trap 'exit 130' INT
  trap 'exit 143' TERM HUP
  relabel fleetlab/bench true
  step kubectl apply --kustomize "$manifests/sharing"
}

# The resource that pods ask for in a mode, as a path of JSON; and how many of it a node then has.
resource() {
  case $1 in
    exclusive) echo 'nvidia\.com/gpu' ;;
    mig) echo 'nvidia\.com/mig-3g\.71gb' ;;
    *) echo 'nvidia\.com/gpu\.shared' ;;
  esac
}

slots() {
  case $1 in
    exclusive) echo "$cards" ;;
    mig) echo $((2 * cards)) ;;
    *) echo $((replicas * cards)) ;;
  esac
}

# Switch the node. From one shared mode to another it goes through exclusive GPUs, so that the change is visible.
share() {
  step kubectl --namespace "$namespace" delete job --all --ignore-not-found
  if [[ $cut && $1 != mig ]]; then
    relabel nvidia.com/mig.config all-disabled
    until_said success label 'nvidia\.com/mig\.config\.state'
    cut=
  fi
  relabel nvidia.com/device-plugin.config exclusive
  until_said 0 allocatable "$(resource time-slicing)"
  if [[ $1 == mig ]]; then
    cut=1
    relabel nvidia.com/mig.config fleetlab-halves
    until_said success label 'nvidia\.com/mig\.config\.state'
  fi
  [[ $1 == exclusive ]] || relabel nvidia.com/device-plugin.config "$1"
  until_said "$(slots "$1")" allocatable "$(resource "$1")"
  step kubectl apply --kustomize "$manifests/overlays/$1/experiments"
  step kubectl --namespace "$namespace" wait --for=condition=Ready pod/collector "--timeout=${patience}s"
}

ended() {
  kubectl --namespace "$namespace" get job "$1" \
    --output 'jsonpath={.status.conditions[?(@.status=="True")].type}' | grep --only-matching --word-regexp --max-count=1 \
    --extended-regexp 'Complete|Failed' | head --lines=1
}

# Run a job that lies ready, with words of its own: job NAME SPEC KEY=VALUE…; whether it came to a good end.
job() {
  local name=$1 spec=$2 data='' pair
  shift 2
  for pair in "folder=$folder" "$@"; do data+="${data:+,}\"${pair%%=*}\":\"${pair#*=}\""; done
  step kubectl --namespace "$namespace" patch configmap run --type merge --patch "{\"data\":{$data}}" || return
  step kubectl --namespace "$namespace" patch job "$name" --type merge \
    --patch "{\"spec\":{${spec:+$spec,}\"suspend\":false}}" || return
  say "+ until job/$name ends"
  [[ $dry ]] && return
  local how=
  # A job has a deadline of its own; this one is for a cluster that no longer answers.
  for ((waited = 0; waited <= longest; waited += poll)); do
    how=$(ended "$name") && break
    sleep "$poll"
  done
  say "job/$name: ${how:-no end was seen}"
  [[ $how == Complete ]]
}

# What is there so far; after each mode, so that an end in the middle costs one mode.
collect() {
  step mkdir -p "$out"
  step kubectl cp "$namespace/collector:/results/$folder" "$out" || say "nothing was copied"
}

# The page of all that tenants said, if any did.
pages() {
  local said=("$out"/*.json)
  if [[ $dry ]]; then
    step fleetlab report "$out/*.json" --title "$1" --out "$out/report.html"
  elif [[ -e ${said[0]} ]]; then
    step fleetlab report "${said[@]}" --title "$1" --out "$out/report.html"
  else
    fail "no tenant said anything: $out" "kubectl --namespace $namespace describe job"
  fi
}
