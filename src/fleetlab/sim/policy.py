"""Your own policies: a function that ranks, and what makes it fit the compiled loops.

A policy gets what a scheduler could know, gives back a number, and the lowest goes first. It never loops over jobs,
places, or writes. The loop around it is ours and has one fixed signature, so the simulator is compiled once for all
policies and a policy alone takes half a second. What a policy may not do is found before a run, not in it.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Sequence
from types import FunctionType
from typing import Any, ClassVar, NamedTuple

import numpy as np
from numba import njit, types
from numba.core.errors import NumbaError
from numba.core.types import CompileResultWAP, WrapperAddressProtocol
from numba.core.typing.templates import Signature
from numba.extending import typeof_impl
from numpy.typing import NDArray

from fleetlab.core import PolicyError
from fleetlab.sim.compile_errors import in_a_line
from fleetlab.sim.jit import config, inner
from fleetlab.sim.layout import Floats, Ints, Records
from fleetlab.sim.purity import moves, must_be_pure
from fleetlab.sim.site_view import SiteView
from fleetlab.sim.world import World


class State(NamedTuple):
    """What a scheduler could know, as read-only columns; never how long a job will really run, nor who comes next."""

    # Of jobs that have arrived: `len` counts them. Those per instance are so for each instance of the gang.
    submit: Floats  # seconds
    estimate: Floats  # estimated runtime, s; known from its arrival on
    instances: Ints
    cpu_milli: Ints  # per instance
    memory_mib: Ints  # per instance
    gpu_milli: Ints  # per instance: a share of one GPU, or 1000 times the number of whole ones
    priority: Ints
    user: Ints  # an index into `usage`
    attained: Floats  # GPU-seconds it has had so far
    remaining: Floats  # estimated remaining runtime, s
    limit: Floats  # time limit, s; inf: none
    qos: Ints  # class of service, an index into `qos_priority`
    partition_id: Ints  # the first partition that it names, from 0 on; -1: it names none
    account: Ints  # its user in its account, an index into the columns of accounts
    # Of users.
    usage: Floats  # dominant share now: the largest part of the cluster's CPU, memory or GPU that the user holds
    # Of classes of service; the last is for jobs without one.
    qos_priority: Ints
    # Of accounts: a tree of the root, accounts, and users in accounts; an account counts with all below it.
    parent: Ints  # -1: of the root
    level: Ints  # 0: the root
    shares: Floats  # its part of all shares
    decayed: Floats  # GPU-seconds used, decayed with the half-life of the site
    fair_share: Floats  # 2 to the power of -(its part of all usage / its part of all shares), 0 to 1
    # Of the policies themselves.
    weights: Floats  # what `simulate` was given for them: with other numbers nothing is compiled again
    # Of nodes.
    free_cpu: Ints  # milli
    free_memory: Ints  # MiB
    free_gpu: Ints  # milli, on all its GPUs
    idle: Ints  # GPUs that nobody holds any of
    most: Ints  # the most that is free on one GPU, milli
    gpus: Ints
    gpu_type: Ints  # 0 the weakest type of the cluster, 1 the next; -1 without GPUs
    capacity_cpu: Ints  # milli of the empty node
    capacity_memory: Ints  # MiB of the empty node


def _column(name: str) -> types.Array[Any]:
    return types.Array(
        types.float64 if name in FLOATS else types.int64, 1, "A" if name in STRIDED else "C", readonly=True
    )


# Columns of jobs and users are arrays of their own; those of nodes and accounts may be columns of a table, a stride
# apart.
NODE_COLUMNS = State._fields[State._fields.index("free_cpu") :]
JOB_COLUMNS = State._fields[: State._fields.index("usage")]
ACCOUNT_COLUMNS = ("parent", "level", "shares", "decayed", "fair_share")
STRIDED = (*NODE_COLUMNS, *ACCOUNT_COLUMNS)
FLOATS = (
    "submit", "estimate", "attained", "remaining", "usage", "weights", "limit", "shares", "decayed", "fair_share",
)  # fmt: skip
STATE_TYPE = types.NamedTuple([_column(name) for name in State._fields], State)  # type: ignore[no-untyped-call]
_INTS = types.Array(types.int64, 1, "C")
_KEYS = types.Array(types.float64, 1, "C")
# (s, jobs, n, now, keys) and (s, nodes, n, job, scores): 1, or 0 where an answer is not a number.
ORDER_SIGNATURE = types.int64(STATE_TYPE, _INTS, types.int64, types.float64, _KEYS)
PLACE_SIGNATURE = types.int64(STATE_TYPE, _INTS, types.int64, types.int64, _KEYS)


def _one_type(_state: State, _context: object) -> types.Type:
    # A cluster of one node has contiguous columns: taken as another type, the loops would be compiled again for it.
    return STATE_TYPE


typeof_impl.register(State)(_one_type)


NO_WEIGHTS: Floats = np.zeros(0)


def state_of(
    world: World,
    nodes: Records,
    *,
    estimate: Floats,
    attained: Floats,
    remaining: Floats,
    usage: Floats,
    weights: Floats = NO_WEIGHTS,
    site: SiteView | None = None,
) -> State:
    """What policies see of a loop's own arrays: views, so they change as the loop changes them."""
    shapes, shape, gpus = world.shapes, world.shape, nodes.end_gpu - nodes.first_gpu
    site = site or SiteView.blank(len(world.submit))
    columns = (
        world.submit,
        estimate,
        world.instances,
        shapes.cpu[shape],
        shapes.memory[shape],
        shapes.milli[shape] * shapes.gpus[shape],
        world.priority,
        world.user,
        attained,
        remaining,
        site.limit,
        site.qos,
        site.partition,
        site.account,
        usage,
        site.qos_priority,
        site.accounts.parent,
        site.accounts.level,
        site.accounts.shares,
        site.accounts.used,
        site.accounts.factor,
        weights,
        nodes.free_cpu,
        nodes.free_memory,
        nodes.free_gpu,
        nodes.idle_gpus,
        nodes.largest_free,
        gpus,
        np.where(gpus > 0, world.capacity.tier, -1),
        world.capacity.cpu,
        world.capacity.memory,
    )
    s = State(*(read_only(column) for column in columns))
    assert all(_is_as_declared(getattr(s, name), kind) for name, kind in zip(s._fields, STATE_TYPE.types, strict=True))
    return s


def _is_as_declared(column: NDArray[Any], kind: types.Array[Any]) -> bool:
    # Compiled code believes the declaration: a column of another type would be misread, not refused.
    return str(column.dtype) == str(kind.dtype) and (kind.layout == "A" or column.flags.c_contiguous)


def no_state() -> State:
    """Return the state of no jobs and no nodes, where nobody is asked."""
    return State(*(read_only(np.zeros(0, np.float64 if name in FLOATS else np.int64)) for name in State._fields))


@inner
def arrived(s: State, n: int) -> State:
    """Return the state at a time when `n` jobs have arrived: columns of jobs end with the last of them."""
    return State(
        s.submit[:n], s.estimate[:n], s.instances[:n], s.cpu_milli[:n], s.memory_mib[:n], s.gpu_milli[:n],
        s.priority[:n], s.user[:n], s.attained[:n], s.remaining[:n], s.limit[:n], s.qos[:n], s.partition_id[:n],
        s.account[:n], s.usage, s.qos_priority, s.parent, s.level, s.shares, s.decayed, s.fair_share, s.weights,
        s.free_cpu, s.free_memory, s.free_gpu, s.idle, s.most, s.gpus, s.gpu_type, s.capacity_cpu, s.capacity_memory,
    )  # fmt: skip


arrived_in_python = getattr(arrived, "py_func", arrived)


class Arrivals(NamedTuple):
    """What jobs bring with them, which policies see from their arrival on: blank before, also behind a column's end."""

    floats: Floats  # [columns, jobs]: of all jobs
    ints: Ints
    seen_floats: Floats  # of those that have arrived
    seen_ints: Ints


BROUGHT_FLOATS = ("submit", "estimate", "limit")
BROUGHT_INTS = tuple(name for name in JOB_COLUMNS if name not in FLOATS)
_NO_FLOATS, _NO_INTS = np.zeros((0, 0)), np.zeros((0, 0), dtype=np.int64)
NO_ARRIVALS = Arrivals(_NO_FLOATS, _NO_INTS, _NO_FLOATS, _NO_INTS)


def hide_arrivals(s: State) -> tuple[State, Arrivals]:
    """Return the state before the first job has arrived, and what `show` fills it from."""
    floats, ints = (np.array([getattr(s, name) for name in of]) for of in (BROUGHT_FLOATS, BROUGHT_INTS))
    shown = Arrivals(floats, ints, np.full(floats.shape, np.nan), np.zeros_like(ints))
    views = dict(
        zip((*BROUGHT_FLOATS, *BROUGHT_INTS), map(read_only, (*shown.seen_floats, *shown.seen_ints)), strict=True)
    )
    return s._replace(**views), shown


@inner
def show(arrivals: Arrivals, t: int) -> None:
    """Let policies see what job `t` brings: it arrives."""
    for k in range(len(arrivals.floats)):
        arrivals.seen_floats[k, t] = arrivals.floats[k, t]
    for k in range(len(arrivals.ints)):
        arrivals.seen_ints[k, t] = arrivals.ints[k, t]


def read_only(column: NDArray[Any]) -> Any:  # noqa: ANN401
    """A view that cannot be written through."""
    view = column.view()
    view.flags.writeable = False
    return view


class Nobody(WrapperAddressProtocol):
    """Stands where a loop takes a policy and is told not to ask one: nothing to compile, never called."""

    def __init__(self, signature: Signature) -> None:
        self._signature = signature

    def __wrapper_address__(self) -> int:
        return -1

    def signature(self) -> Signature:
        """The type a loop sees."""
        return self._signature


NO_ORDER, NO_PLACE = Nobody(ORDER_SIGNATURE), Nobody(PLACE_SIGNATURE)


# Only our loop asks a policy, and only the simulator asks that: what Python would call them by takes half the time.
INSIDE: dict[str, Any] = {"no_cpython_wrapper": True}


class Loop(CompileResultWAP):
    """A policy's compiled loop, as a value of the one signature that the simulator takes."""

    def __call__(self, s: State, items: Ints, n: int, beside: Any, keys: Floats) -> int:  # noqa: ANN401
        """Ask it from Python."""
        return int(_ask(self, s, items, n, beside, keys))


@njit(cache=True)
def _ask(fill: Loop, s: State, items: Ints, n: int, beside: float, keys: Floats) -> int:
    return fill(s, items, n, beside, keys)


Rank = Callable[[State, int, Any], float]
Fill = Callable[[State, Ints, int, Any, Floats], int]


class Ranking:
    """A function that ranks, and its compiled form."""

    kind: ClassVar[str]
    takes: ClassVar[tuple[str, ...]]
    signature: ClassVar[Signature]
    _asks: ClassVar[tuple[types.Type, ...]]  # what the function itself is compiled for

    def __init__(self, rank: Rank) -> None:
        self.rank = _function(rank, self)
        self.name = self.rank.__name__
        self.doc = inspect.getdoc(self.rank) or ""
        self._fill: Fill | None = None

    def __repr__(self) -> str:
        return f"<{self}>"

    def __str__(self) -> str:
        return f"{self.kind} policy `{self.name}`"

    def compiled(self) -> Fill:
        """The loop around the function that the simulator asks: made once, when first wanted.

        It fills keys for `n` items and gives back 1, or 0 where an answer is not a number or there is none.
        """
        if self._fill is None:
            must_be_pure(self.rank, str(self))
            self._fill = _plain(self._around(self.rank)) if _is_plain() else self._compile()
        return self._fill

    def refusal(self, s: State, items: Sequence[int] | Ints, beside: float) -> PolicyError:
        """Why this policy's loop gave back 0, asked again for the same items: jobs and now, or nodes and a job."""
        for item in items:
            answer = self.ask(s, int(item), beside)
            if isinstance(answer, str):
                return PolicyError(f"{self} {answer}, asked for {self._said(s, int(item), beside)}", hint=GUARD)
        return PolicyError(f"{self} gave no number in the run", hint=GUARD)

    def ask(self, s: State, item: int, beside: float) -> float | str:
        """What the function says as plain Python, or what is wrong with that, in words."""
        try:
            with np.errstate(all="ignore", divide="raise"):
                answer = self._asked(s, np.int64(item), beside)
        except (ZeroDivisionError, FloatingPointError):
            return "divides by 0"
        except Exception as e:  # whatever a user's function raises, the user gets to know
            return f"raises {type(e).__name__}: {e}"
        if not isinstance(answer, int | float | np.number | np.bool_) or isinstance(answer, np.complexfloating):
            return f"returns something that is not a number, but a {type(answer).__name__}"
        return "returns NaN" if answer != answer else float(answer)

    def _compile(self) -> Fill:
        rank, before = njit(boundscheck=True, **INSIDE)(self.rank), config.BOUNDSCHECK
        config.BOUNDSCHECK = 1  # for functions that the policy calls too: nothing is read behind a column's end
        try:
            rank.compile(self._asks)
            answer = rank.nopython_signatures[0].return_type
            if not isinstance(answer, types.Integer | types.Float | types.Boolean):
                msg = f"{self} returns {_in_words(answer)}"
                raise PolicyError(msg, hint="return one number from every branch: the lowest goes first")
            fill = njit(self.signature, **INSIDE)(self._around(rank))
        except NumbaError as e:
            what, hint = in_a_line(str(e), State._fields)
            msg = f"{self} does not compile: {what}"
            raise PolicyError(msg, hint=hint) from None
        finally:
            config.BOUNDSCHECK = before
        # Taken as a value of that one signature, not as a function of its own type: so the simulator compiles once.
        return Loop(fill.get_compile_result(self.signature))

    def _asked(self, s: State, item: np.int64, beside: Any) -> Any:  # noqa: ANN401
        raise NotImplementedError

    def _around(self, rank: Rank) -> Fill:
        raise NotImplementedError

    def _said(self, s: State, item: int, beside: Any) -> str:  # noqa: ANN401
        raise NotImplementedError


class order(Ranking):
    """A queue order: the lowest key goes first, ties go to the job submitted first.

    Parameters
    ----------
    rank
        A function of `(s, job, now)` that returns a number: `s` has what a scheduler could know, as columns (see
        docs/write-a-policy.md), `job` is an index into those of jobs, and `now` is seconds.

    Raises
    ------
    PolicyError
        If it is no function of three arguments. What it may not do is found before a simulation, not in it.

    Examples
    --------
    >>> @order
    ... def patient(s, job, now):
    ...     return s.estimate[job] - (now - s.submit[job])
    >>> patient, patient.moves
    (<order policy `patient`>, True)
    """

    kind = "order"
    takes = ("s", "job", "now")
    signature = ORDER_SIGNATURE
    _asks = (STATE_TYPE, types.int64, types.float64)

    def __init__(self, rank: Rank) -> None:
        super().__init__(rank)
        self.moves = moves(self.rank)  # may a key change while its job waits? If not, it is asked for once
        self.timed = not moves(self.rank, by_time=False)  # if so, with nothing but the time?

    def __call__(self, s: State, job: int, now: float) -> float:
        """What the function says, as plain Python."""
        return self.rank(s, job, now)  # type: ignore[no-any-return]

    def _asked(self, s: State, item: np.int64, beside: float) -> Any:  # noqa: ANN401
        return self.rank(s, item, beside)

    def _around(self, rank: Rank) -> Fill:
        def fill(s: State, jobs: Ints, n: int, now: float, keys: Floats) -> int:
            for k in range(n):
                # An exception cannot pass through a first-class function. The block holds this one call and no
                # `return`: with one inside, the compiler lets what is raised in the first turn slip by.
                try:
                    key = 1.0 * rank(s, jobs[k], now)  # as float(), which compiled code has not for booleans
                except Exception:
                    key = np.nan
                if key != key:
                    return 0
                keys[k] = key
            return 1

        return fill

    def _said(self, s: State, item: int, beside: float) -> str:
        return f"job {item} at {float(beside)} s: {_row(s, item, of=10)}"


class BuiltInOrder(order):
    """An order whose keys change with time, with the loop around it, which is compiled once for all processes."""

    def __init__(self, rank: Rank, fill: Any) -> None:  # noqa: ANN401
        super().__init__(rank)
        self.moves = self.timed = True
        self._around_it = fill

    def _compile(self) -> Fill:
        self._around_it.compile(ORDER_SIGNATURE)
        return Loop(self._around_it.get_compile_result(ORDER_SIGNATURE))


class placement(Ranking):
    """Where an instance goes: of the nodes that can hold it the lowest score, and ties go to the first node.

    Parameters
    ----------
    rank
        A function of `(s, job, node)` that returns a number: `s` has what a scheduler could know, as columns, `job` is
        an index into those of jobs and `node` into those of nodes.

    Raises
    ------
    PolicyError
        If it is no function of three arguments. What it may not do is found before a simulation, not in it.

    Examples
    --------
    >>> @placement
    ... def tight(s, job, node):
    ...     return s.free_gpu[node]
    >>> tight
    <placement policy `tight`>
    """

    kind = "placement"
    takes = ("s", "job", "node")
    signature = PLACE_SIGNATURE
    _asks = (STATE_TYPE, types.int64, types.int64)
    moves = True  # nodes change all the time

    def __call__(self, s: State, job: int, node: int) -> float:
        """What the function says, as plain Python."""
        return self.rank(s, job, node)  # type: ignore[no-any-return]

    def _asked(self, s: State, item: np.int64, beside: float) -> Any:  # noqa: ANN401
        return self.rank(s, np.int64(beside), item)

    def _around(self, rank: Rank) -> Fill:
        def fill(s: State, nodes: Ints, n: int, job: int, scores: Floats) -> int:
            for k in range(n):
                try:
                    score = 1.0 * rank(s, job, nodes[k])
                except Exception:
                    score = np.nan
                if score != score:
                    return 0
                scores[k] = score
            return 1

        return fill

    def _said(self, s: State, item: int, beside: float) -> str:
        return f"job {int(beside)} on node {item}: {_row(s, item, of=-len(NODE_COLUMNS))}"


GUARD = (
    "answer for every job: guard divisions and logarithms, as in `x / max(1.0, y)`, and stay inside the columns; those "
    "of jobs end with the last that has arrived"
)


def _row(s: State, item: int, *, of: int) -> str:
    """What the state says of one job (the first columns) or of one node (the last), to be read in an error."""
    names = State._fields[:of] if of > 0 else State._fields[of:]
    return ", ".join(f"{name} {getattr(s, name)[item]}" for name in names)


def _in_words(answer: types.Type) -> str:
    if isinstance(answer, types.NoneType | types.Optional):
        return "nothing" if isinstance(answer, types.NoneType) else "nothing in some of its branches"
    return f"something that is not a number: {types.unliteral(answer)}"  # type: ignore[no-untyped-call]


def _is_plain() -> bool:
    return bool(getattr(config, "DISABLE_JIT", 0))


def _plain(fill: Fill) -> Fill:
    def quiet(s: State, items: Ints, n: int, beside: Any, keys: Floats) -> int:  # noqa: ANN401
        # Compiled code overflows silently and raises where something is divided by 0: here the same.
        try:
            with np.errstate(all="ignore", divide="raise"):
                return fill(s, items, n, beside, keys)
        except (TypeError, ValueError):  # an answer that is no key: a complex number, a column
            return 0

    return quiet


def _function(rank: object, policy: Ranking) -> FunctionType:
    """The plain function behind what was decorated, if it takes what such a policy takes."""
    takes = f"`def mine({', '.join(policy.takes)})`"
    rank = getattr(rank, "py_func", rank)
    if isinstance(rank, Ranking) or not isinstance(rank, FunctionType):
        msg = f"`@{policy.kind}` takes a function, not: `{rank!r}`"
        raise PolicyError(msg, hint=f"write it as {takes}")
    code = rank.__code__
    if code.co_argcount != len(policy.takes) or code.co_kwonlyargcount or code.co_flags & _STARS:
        given = inspect.signature(rank)
        msg = f"a policy of kind {policy.kind} takes {', '.join(policy.takes)}, not: `{rank.__name__}{given}`"
        raise PolicyError(msg, hint=f"write it as {takes}; the names are free, their number is not")
    return rank


_STARS = inspect.CO_VARARGS | inspect.CO_VARKEYWORDS
