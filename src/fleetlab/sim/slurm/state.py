"""What the loops of Slurm work on: jobs, nodes, partitions, and the settings that do not change.

Times are seconds, as floats; Slurm itself reads its clock in whole seconds, and so do its loops here (`clock.second`).
"""

from __future__ import annotations

from typing import NamedTuple

from fleetlab.sim.layout import Floats, Ints, Record, Records, record

FUTURE, PENDING, RUNNING, DONE = range(4)  # state of a job

JOB = record(
    "number instances distinct exclusive cpu memory gpus request first_partition partitions user leaf qos account array"
    " array_limit gang reservation first_parent parents first_slot slots nice part state requeues failures killed"
    " started_by preempting submit:f begin:f eligible:f runtime:f limit:f priority:f start:f end:f expected_end:f"
    " planned:f first_start:f preempted_at:f preempts_since:f accrue:f overhead:f first_eligible:f"
)
#   number: by submission; killed: it does not end well; instances: each of cpu milli, memory MiB and so many GPUs, on
#   nodes of their own if distinct; request: its row of `allowed`; partitions: entries of `partition_of` from
#   first_partition on; array, gang, reservation: -1 for none; parents: entries of `parent_of`; slots: the nodes that it
#   holds, from first_slot on; begin: not before; eligible: since when it could run, inf: not yet; accrue: since when
#   its age counts; runtime: seconds to its end; expected_end: by its time limit; planned: when the last cycle of
#   backfill expects its start, 0: unknown; preempting: it waits for jobs that it preempted, since preempts_since

NODE = record("free_cpu free_memory free_gpu cpu memory gpus weight up drained completing exclusive single")
#   completing: jobs whose epilog runs there, which keeps all others off; exclusive: given to one job alone; single:
#   rows of `first_gpu` for the GPUs that a job was given

PARTITION = record("tier up max_nodes grace preempt_mode qos factor:f max_time:f over_time:f exclusive")
RESERVATION = record("begin:f end:f ignore_jobs")

CLOCK = record(
    "now:f second:f epoch:f last_main:f last_full:f last_backfill:f next_backfill:f changed:f pending running requested"
    " at_once tested next_job next_outage events finished queue serial runs entries"
)
#   epoch: the Unix time of second 0; last_main, last_full: when the main loop looked last, and at the whole queue;
#   requested: somebody asked it to look; at_once: and now, not in its time; tested: jobs that the last cycle
#   of backfill tried;
#   changed: when a job or a node changed last; events: length of the heap


class Settings(NamedTuple):
    """Numbers of slurm.conf; in seconds where they are times."""

    depth: int
    partition_depth: int
    main_interval: float
    delay: float
    defer: int
    max_start: int
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
    busy_nodes: int
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
    until: float


NO_PREEMPTION, BY_QOS, BY_PARTITION = range(3)
OFF, REQUEUE, CANCEL, SUSPEND = range(4)


class Free(NamedTuple):
    """What is free on every node: now, or when some jobs have ended."""

    cpu: Ints
    memory: Ints
    gpu: Ints


class Slurm(NamedTuple):
    """Everything that changes, and the tables beside it."""

    clock: Record  # CLOCK
    jobs: Records  # JOB
    nodes: Records  # NODE
    parts: Records  # PARTITION
    free: Free
    then: Free  # scratch: what is free when some running jobs have ended
    partition_of: Ints  # partitions that jobs name
    parent_of: Ints  # jobs that others depend on
    rule_of: Ints  # how: see `dependencies`
    in_partition: Ints  # [partitions, nodes]
    allowed: Ints  # [requests, nodes]: GPU types and features
    reservations: Records  # RESERVATION
    reserved: Ints  # [reservations, nodes]
    array_running: Ints  # [arrays]
    gang_first: Ints  # [gangs + 1]
    gang_jobs: Ints
    pending: Ints  # [jobs]: in order of submission
    running: Ints  # [jobs]: list
    slot_node: Ints  # [instances]: nodes that jobs hold
    slot_count: Ints  # instances there
    slot_gpus: Ints  # GPUs there, as bits
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
    victims: Ints  # [jobs]: scratch
    outage_time: Floats
    outage_node: Ints
    outage_what: Ints  # DOWN, DRAIN or BACK
    runs: Records  # RUN: of jobs that ran more than once
    entries: Ints  # [instances of those runs, 2]
