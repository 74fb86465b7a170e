#!/bin/sh
# Gather what Slurm tells an ordinary user about its jobs, nodes and rules, for `fleetlab read slurm DIR`.
#   sh collect.sh --out DIR [--since TIME] [--until TIME] [--json]
# TIME is as for sacct: 2024-05-01, now-30days. Nothing is changed, and nothing is sent anywhere.
# What may not be read is said, and left out; the rest is still gathered. Needs only Slurm's commands and POSIX sh.

usage() {
    echo "usage: sh collect.sh --out DIR [--since TIME] [--until TIME] [--json]" >&2
    exit 2
}

out='' since=now-30days until=now json=''
while [ $# -gt 0 ]; do
    case $1 in
    --out | --since | --until) [ $# -ge 2 ] || usage ;;
    esac
    case $1 in
    --out) out=$2; shift 2 ;;
    --since) since=$2; shift 2 ;;
    --until) until=$2; shift 2 ;;
    --json) json=yes; shift ;;
    *) usage ;;
    esac
done
[ -n "$out" ] || usage
mkdir -p "$out" || exit 2
for used in squeue scontrol sacct; do
    command -v "$used" >/dev/null 2>&1 && break
    used=''
done
[ -n "$used" ] || { echo "error: no squeue, scontrol or sacct here; run this on a login node of the cluster" >&2; exit 2; }
missing=0
export LC_ALL=C SLURM_TIME_FORMAT=standard

# gather FILE COMMAND...: what the command prints goes to FILE; where it may not, a line says so and the file is not there.
gather() {
    file=$1
    shift
    if ! command -v "$1" >/dev/null 2>&1; then
        echo "left out: $file: no command $1 here" >&2
        missing=$((missing + 1))
        return
    fi
    if "$@" >"$out/$file.part" 2>"$out/$file.err"; then
        mv "$out/$file.part" "$out/$file"
        echo "$file: $(wc -l <"$out/$file" | tr -d ' ') lines"
    else
        echo "left out: $file: $*: $(head -n 1 "$out/$file.err")" >&2
        rm -f "$out/$file.part"
        missing=$((missing + 1))
    fi
    rm -f "$out/$file.err"
}

# fields: those of the list below that this version of sacct knows. Free text is last: it may hold any character.
fields() {
    known=$(sacct --helpformat 2>/dev/null | tr -s '[:space:]' '[\n*]' | tr '[:upper:]' '[:lower:]')
    for field in JobID JobIDRaw Cluster User Account Partition QOS Submit Eligible Start End State ElapsedRaw Suspended \
        Priority AllocTRES ReqTRES AllocNodes AllocCPUS ReqCPUS ReqMem NodeList Timelimit TimelimitRaw Reason Flags \
        Constraints Reservation Restarts ExitCode DerivedExitCode SubmitLine JobName; do
        lower=$(echo "$field" | tr '[:upper:]' '[:lower:]')
        if [ -z "$known" ] || echo "$known" | grep -qx "$lower"; then
            printf '%s,' "$field"
        fi
    done
}

include='[Ii][Nn][Cc][Ll][Uu][Dd][Ee][[:space:]]\{1,\}'

# keep CONF DEPTH: a copy of a configuration file and of what it includes, so deep, with passwords taken out.
keep() {
    name=$(basename "$1")
    if [ ! -r "$1" ]; then
        echo "left out: $name: $1 may not be read here" >&2
        missing=$((missing + 1))
        return
    fi
    # The copy includes the copies beside it.
    sed -e 's/\([Pp][Aa][Ss][Ss]\)=[^[:space:]]*/\1=removed/' -e "s#^\([[:space:]]*$include\)/[^[:space:]]*/#\1#" \
        "$1" >"$out/$name"
    echo "$name: $(wc -l <"$out/$name" | tr -d ' ') lines"
    [ "$2" -gt 0 ] || return
    sed -n "s/^[[:space:]]*$include\([^[:space:]]*\).*/\1/p" "$1" |
        while read -r included; do
            case $included in
            /*) keep "$included" $(($2 - 1)) ;;
            *) keep "$(dirname "$1")/$included" $(($2 - 1)) ;;
            esac
        done
}

{
    date '+collected=%Y-%m-%dT%H:%M:%S%z'
    echo "since=$since"
    echo "until=$until"
    # Slurm writes local times without a zone.
    echo "zone=$(readlink /etc/localtime 2>/dev/null | sed -n 's#.*/zoneinfo/##p')"
    echo "user=$(id -un)"
} >"$out/collected.txt"
gather config.txt scontrol show config
gather nodes.txt scontrol show node -a
gather partitions.txt scontrol show partition -a
gather reservations.txt scontrol show reservation
gather squeue.txt squeue -a -o '%i|%T|%r|%p|%Q|%S|%N|%V|%e|%P|%q|%u|%a|%l|%j'
gather sprio.txt sprio -o '%i|%u|%r|%Y|%A|%B|%F|%J|%P|%Q|%T|%S|%N|%y|%a|%b|%f|%j|%p|%q|%t'
gather sdiag.txt sdiag
limits=GrpJobs,GrpTRES,GrpSubmit,GrpWall,GrpTRESMins,MaxJobs,MaxTRES,MaxTRESPerNode,MaxSubmit,MaxWall,MaxTRESMins
whose=Cluster,Account,User,Partition,Share,Priority
gather assoc.txt sacctmgr show assoc -P format="$whose,$limits,QOS,DefaultQOS,GrpTRESRunMins,ParentName,ID"
gather qos.txt sacctmgr show qos -P
gather sshare.txt sshare -a -l -P
gather events.txt sacctmgr show event -P start="$since" end="$until" format=NodeName,Start,End,State,Reason,User,TRES
# scontrol forgets reservations when they end; these name users and accounts by the ID of assoc.txt.
reserved=Name,Start,End,NodeNames,Flags,Assoc,TRES,ID
gather reservation-log.txt sacctmgr show reservation -P start="$since" end="$until" format="$reserved"
gather sacct.txt sacct -a -D -P -S "$since" -E "$until" -o "$(fields)"
[ -z "$json" ] || gather sacct.json sacct -a -D --json -S "$since" -E "$until"
cluster=$(sed -n 's/^ClusterName *= *//p' "$out/config.txt" 2>/dev/null | head -n 1)
[ -z "$cluster" ] || gather accounts.cfg sacctmgr -r dump "$cluster" file=/dev/stdout
conf=$(sed -n 's/^SLURM_CONF *= *//p' "$out/config.txt" 2>/dev/null | head -n 1)
if [ -n "$conf" ]; then
    keep "$conf" 5
    for beside in gres.conf topology.conf; do
        [ ! -e "$(dirname "$conf")/$beside" ] || keep "$(dirname "$conf")/$beside" 5
    done
fi
private=$(sed -n 's/^PrivateData *= *//p' "$out/config.txt" 2>/dev/null)
case $private in
'' | none) ;;
*) echo "PrivateData=$private: of these you see your own only, unless you are an operator" >&2 ;;
esac
[ $missing = 0 ] || echo "$missing of the files could not be had; the reader says what it assumes without them" >&2
echo "gathered in $out"
