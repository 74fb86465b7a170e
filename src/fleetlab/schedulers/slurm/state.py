"""What the loops of Slurm work on: jobs, nodes, partitions, and the settings that do not change.

Times are seconds, as floats; Slurm itself reads its clock in whole seconds, and so do its loops here (`clock.second`).
"""

from __future__ import annotations

from typing import NamedTuple

from fleetlab.sim.layout import Floats, Ints, Record, Records, record

FUTURE, PENDING, RUNNING, DONE, DROPPED = range(5)  # state of a job; dropped: cancelled before it ran

JOB = record(
    "number instances distinct exclusive cpu memory gpus request first_partition partitions user leaf qos account array"
    " array_limit gang reservation first_parent parents first_slot slots nice part state requeues failures killed cut"
    " refused times_out timed_out started_by preempting may_requeue any_parent skipped whole row turn suspended checked"
    " gone shape_id submit:f begin:f eligible:f runtime:f limit:f priority:f start:f end:f expected_end:f planned:f"
    " first_start:f preempted_at:f grace_end:f preempts_since:f accrue:f overhead:f first_eligible:f tolerance:f"
    " suspended_at:f left:f lost:f passed:f tested:f looked:f limited_since:f limited_until:f"
)
#   number: by submission; killed: it does not end well; refused: at its submission, by REFUSALS; times_out: its time
#   limit ends this run; timed_out: one did; tolerance: how far above its limit it may run, because the log saw it;
#   instances: each of cpu milli, memory MiB and so many GPUs, on nodes of their own if distinct; request: its row of
#   `allowed`; shape_id: jobs of one ask for the same; partitions: entries of `partition_of` from first_partition on;
#   array, gang, reservation: -1 for none;
#   parents: entries of `parent_of`; slots: the nodes that it holds, from first_slot on; begin: not before; eligible:
#   since when it could run, inf: not yet; accrue: since when its age counts; runtime: seconds to its end; expected_end:
#   by its time limit; planned: when the last cycle of backfill expects its start, 0: unknown; preempting: it waits for
#   jobs that it preempted, since preempts_since; preempted_at: when it was told to go, -1: it was not; grace_end: until
#   when it may stay; whole: it has its nodes to itself; row, turn, suspended, left: see `cores` and `gang`;
#   lost: seconds of runs that others ended, cut: for good; gone: a plan is made without it; for the wait ledger:
#   passed, tested: when the main loop passed it over for a job ahead of it, and when backfill last left it waiting;
#   looked: which of the two counts, as it starts; skipped: by which limit the last cycle of backfill passed over it, 0:
#   by none; limited_since, limited_until: when a loop first and last found it at
#   a limit on minutes

NODE = record("cpu memory gpus weight up drained completing completes:f")
#   completing: jobs whose epilog runs there, which keeps all others off; since `completes`

PARTITION = record("tier up grace preempt_mode qos factor:f max_time:f over_time:f exclusive sharing")
RESERVATION = record("begin:f end:f known:f group flex")
#   known: when it was made; group: of one name, which may come several times; flex: its jobs may start before it, and
#   on other nodes too

CLOCK = record(
    "now:f second:f epoch:f last_main:f last_full:f last_backfill:f next_backfill:f changed:f pending running requested"
    " at_once tested next_job next_outage events finished queue serial runs entries last_kill:f turns checks suspends"
    " slice_at:f"
)
#   epoch: the Unix time of second 0; last_main, last_full: when the main loop looked last, and at the whole queue;
#   requested: somebody asked it to look; at_once: and now, not in its time; tested: jobs that the last
#   cycle of backfill tried;
#   changed: when a job or a node changed last; events: length of the heap; last_kill: when time limits were looked at;
#   suspends: jobs of lower tiers are suspended for others; turns, checks, slice_at: see `gang`


class Settings(NamedTuple):
    """Numbers of slurm.conf; in seconds where they are times."""

    depth: int
    partition_depth: int
    main_interval: float
    delay: float
    max_start: int
    defer: int
    backfill: int
    interval: float
    resolution: float
    window: float
    max_jobs: int
    max_jobs_user: int
    max_jobs_partition: int
    max_jobs_user_partition: int
    max_jobs_account: int
    max_backfill_start: int
    max_tasks: int
    min_age_reserve: float
    min_priority_reserve: float
    one_reservation: int
    kill_invalid: int  # kill_invalid_depend: a job that can never run is cancelled
    limit_stop: int  # assoc_limit_stop: a job at a limit blocks its partition
    least_loaded: int  # CR_LLN
    epilog: float
    complete_wait: float
    kill_wait: float
    over_time: float
    main_phase: float  # how far into a second the main loop looks
    beat: float  # s between two moments at which the main loop may look
    per_job: float  # s that a cycle of backfill takes for each job that it tries
    preempt: int  # NO_PREEMPTION, BY_QOS, BY_PARTITION
    youngest_first: int  # preempt_youngest_first
    strict_order: int  # preempt_strict_order
    reorders: int  # preempt_reorder_count
    check_phase: float  # how far into half a minute slurmctld looks for jobs whose time is over
    until: float


NO_PREEMPTION, BY_QOS, BY_PARTITION = range(3)
OFF, REQUEUE, CANCEL, SUSPEND = range(4)
WITHIN = 2  # of `preempts`: if its priority is higher


class Free(NamedTuple):
    """What is free on every node: now, or when some jobs have ended."""

    cpu: Ints
    memory: Ints
    gpu: Ints
    cores: Ints  # [rows, nodes, words]: CPUs that are held in each row, as bits; no rows where none are shared
    alone: Ints  # [nodes]: jobs that have it to themselves
    one_row: Ints  # [nodes]: jobs that share no CPUs


class Slurm(NamedTuple):
    """Everything that changes, and the tables beside it."""

    clock: Record  # CLOCK
    jobs: Records  # JOB
    nodes: Records  # NODE
    parts: Records  # PARTITION
    free: Free
    then: Free  # scratch: what is free when some running jobs have ended
    shape_room: Ints  # [shapes, partitions]: scratch: instances that there is room for now, -1: not counted
    ready_shape: Ints  # [rows]: scratch of `ready_row`: the shape of each row of `ready_at`, -1: none
    ready_at: Floats  # [rows, nodes]: when a node has room for an instance of that shape, as running jobs end
    partition_of: Ints  # partitions that jobs name
    parent_of: Ints  # jobs that others depend on
    rule_of: Ints  # how: see `queue`
    delay_of: Floats  # s after the start of the other job
    entry_open: Ints  # [entries of partition_of]: whether a job may run in each of its partitions
    in_partition: Ints  # [partitions, nodes]
    allowed: Ints  # [requests, nodes]: GPU types and features
    reservations: Records  # RESERVATION
    reserved: Ints  # [reservations, nodes]
    partition_set: Ints  # [partitions, words]: the same as sets of nodes, see `node_sets`
    allowed_set: Ints  # [requests, words]
    reserved_set: Ints  # [reservations, words]
    of_user: Ints  # [partitions, users]: scratch: jobs tested in a cycle
    array_running: Ints  # [arrays]
    gang_first: Ints  # [gangs + 1]
    gang_jobs: Ints
    pending: Ints  # [jobs]: in order of submission
    running: Ints  # [jobs]: list
    slot_node: Ints  # [instances]: nodes that jobs hold
    slot_count: Ints  # instances there
    slot_gpus: Ints  # GPUs there, as bits
    slot_cores: Ints  # [instances, words]: CPUs there, as bits
    first_row: Ints  # [partitions + 1]: rows of each
    row_part: Ints  # [rows]: their partitions
    skip_row: Ints  # [rows]: scratch
    open_bits: Ints  # [nodes, words]: scratch: CPUs that a job may have
    open_cpu: Ints  # [nodes]: scratch: how many, milli
    joinable: Ints  # [nodes]: scratch
    active: Ints  # [nodes]: scratch: CPU milli of jobs that run
    turns: Ints  # [jobs]: running jobs, in the order in which they have their turn
    gpu_used: Ints  # [nodes]: bits
    usable: Ints  # [nodes]: scratch
    current: Ints  # [nodes]: scratch
    chosen: Ints  # [nodes]: scratch of `choose`
    share: Ints  # [nodes]: instances on each chosen node
    room: Ints  # [nodes]: scratch
    sets: Ints  # [nodes, 7]: scratch: sets of consecutive nodes
    queue_job: Ints  # the queue of one pass
    queue_part: Ints
    queue_priority: Floats
    entry_priority: Floats  # [entries of partition_of]: of a job in each of its partitions
    by_end: Ints  # [jobs]: scratch: running jobs by expected end
    event_keys: Floats  # a heap of events
    events: Ints
    preempts: Ints  # [qos, qos]
    qos_mode: Ints  # [qos]: how jobs of it are preempted
    qos_rank: Ints  # [qos]: those that are preempted by others come later
    qos_weight: Ints  # [qos]: its priority, by which jobs are preempted
    qos_grace: Floats  # [qos]: s between being told to go and going
    qos_exempt: Floats  # [qos]: s after its start in which a job is not preempted
    victims: Ints  # [jobs]: scratch
    victim_nodes: Ints  # [jobs]: scratch: how many of the chosen nodes each holds
    target: Ints  # [nodes]: scratch: where a job would go that preempts others
    outage_time: Floats
    outage_node: Ints
    outage_what: Ints  # DOWN, DRAIN or BACK
    runs: Records  # RUN: of jobs that ran more than once
    entries: Ints  # [instances of those runs, 2]
