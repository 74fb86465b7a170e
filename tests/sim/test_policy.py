"""Policies of one's own: what they may do, what is refused, and that the loops are compiled once for all of them."""

import math
import os
import random
import subprocess
import sys
import time
from pathlib import Path
from textwrap import dedent

import numpy as np
import polars as pl
import pytest
from numba import config, njit, typeof

import fleetlab
from fleetlab.core.words import WORDS
from fleetlab.sim import check
from fleetlab.sim.check import check_order, check_placement
from fleetlab.sim.load import load
from fleetlab.sim.orders import BY_NAME, aging, las
from fleetlab.sim.policy import JOB_COLUMNS, NODE_COLUMNS, STATE_TYPE, State, order, placement, state_of
from fleetlab.sim.world import world

LIST, TABLE, ARRAY, TUPLE, WEIGHT = [1.0], {0: 1.0}, np.ones(3), (1.0, 2.0), 2.0


def plain_function(x):
    return x + 1


@njit
def doubled(x):
    return 2 * x


@njit
def halved(x):
    return x if x < 1 else halved(x / 2)


@njit
def by_chance(x):
    return x * np.random.rand()


@pytest.fixture
def s():
    """What a loop shows of two users' jobs on a node with and a node without GPUs."""
    jobs = pl.DataFrame(
        {
            "parent": [0, 1, 2],
            "user": ["ann", "bob", "ann"],
            "submit": [0.0, 1.0, 2.0],
            "runtime": [30.0, 20.0, 10.0],
            "instances": [1, 2, 1],
            "cpu_milli": [1000, 2000, 3000],
            "gpu_milli": [2000, 500, 0],
            "priority": [0, 5, 1],
        }
    )
    nodes = pl.DataFrame(
        {
            "node": ["a", "b"],
            "gpu_type": ["T4", None],
            "gpus": [4, 0],
            "cpu_milli": [9000, 8000],
            "memory_mib": [64, 32],
        }
    )
    w = world(fleetlab.Workload.of(jobs, source="test"), fleetlab.Cluster.of(nodes, source="test"))
    free = {"attained": np.array([9000.0, 10.0, 0.0]), "usage": np.array([0.5, 0.25])}
    return state_of(w, w.nodes, estimate=w.estimate, remaining=w.estimate.copy(), **free)


def first(policy, s, now=5.0):
    """The job that goes first: asked as plain Python, which `check_order` holds to what is compiled."""
    return min(range(len(s.submit)), key=lambda job: policy(s, job, now))


# -- what it is asked with -----------------------------------------------------------------------------------------


def test_the_state_says_what_jobs_ask_for(s):
    assert [s.gpu_milli.tolist(), s.cpu_milli.tolist()] == [[2000, 500, 0], [1000, 2000, 3000]]


def test_the_state_says_what_is_on_nodes(s):
    found = {name: getattr(s, name).tolist() for name in ("free_cpu", "free_gpu", "idle", "most", "gpus", "gpu_type")}
    assert found == {
        "free_cpu": [9000, 8000],
        "free_gpu": [4000, 0],
        "idle": [4, 0],
        "most": [1000, 0],
        "gpus": [4, 0],
        "gpu_type": [0, -1],
    }


def test_the_state_changes_with_the_loop_but_not_by_policies():
    trace = fleetlab.synthesize("pai2020", jobs=20, seed=1)
    w = world(trace.workload, trace.cluster)
    s = state_of(w, w.nodes, estimate=w.estimate, attained=w.submit, remaining=w.submit, usage=np.zeros(len(w.users)))
    w.nodes.free_cpu[3] = 77
    assert s.free_cpu[3] == 77
    assert not any(column.flags.writeable for column in s)


@pytest.mark.parametrize("nodes", [1, 2])
def test_a_state_has_one_type_whatever_the_cluster(nodes):
    job = pl.DataFrame({"parent": [0], "submit": [0.0], "runtime": [1.0], "gpu_milli": [1000]})
    w = world(fleetlab.Workload.of(job, source="test"), fleetlab.Cluster.uniform(nodes, 8))
    s = state_of(w, w.nodes, estimate=w.estimate, attained=w.submit, remaining=w.submit, usage=np.zeros(1))
    assert typeof(s) == STATE_TYPE


# -- what is built in ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", BY_NAME)
def test_a_built_in_order_is_a_pure_ranking_and_says_what_it_is(name):
    check_order(BY_NAME[name])
    assert (BY_NAME[name].name, bool(BY_NAME[name].doc)) == (name, True)


@pytest.mark.parametrize(
    ("name", "job"),
    [("fifo", 0), ("sjf", 2), ("smallest", 2), ("largest", 0), ("priority", 1), ("las", 1), ("fair", 1), ("srpt", 2)],
)
def test_a_built_in_order_puts_the_right_job_first(name, job, s):
    assert first(BY_NAME[name], s) == job


@pytest.mark.parametrize(("weight", "job"), [(0.5, 2), (20.0, 0)])
def test_aging_weighs_waiting_against_length(weight, job, s):
    assert first(aging(weight), s) == job


def test_las_takes_its_threshold(s):
    assert first(las(1e6), s) == 0


@pytest.mark.parametrize("name", BY_NAME)
def test_only_orders_that_look_at_what_changes_move(name):
    assert BY_NAME[name].moves is (name in ("las", "fair", "srpt", "wfp3", "unicef"))


# -- orders by time, and the score that Cobalt's documentation writes ------------------------------------------------

WAITING = [(600.0, 60, 1), (7200.0, 360, 64), (86_400.0, 1440, 512), (1.0, 5, 2)]  # seconds, minutes, size


@pytest.mark.parametrize(("queued_time", "wall_time", "size"), WAITING)
def test_wfp3_is_the_score_of_cobalt(s, queued_time, wall_time, size):
    job = replaced(s, submit=0.0, estimate=60.0 * wall_time, instances=size, gpu_milli=1000)
    assert -BY_NAME["wfp3"](job, 0, queued_time) == pytest.approx((queued_time / (wall_time * 60)) ** 3 * size)


@pytest.mark.parametrize(("queued_time", "wall_time", "size"), WAITING)
def test_unicef_is_the_score_of_cobalt_with_a_smallest_partition_of_two(s, queued_time, wall_time, size):
    job = replaced(s, submit=0.0, estimate=60.0 * wall_time, instances=size, gpu_milli=1000)
    z = max(math.ceil(math.log2(size)), 1)  # for 64 nodes it is `max(…, 6) - 5`
    assert -BY_NAME["unicef"](job, 0, queued_time) == pytest.approx(queued_time / (60 * z * max(wall_time, 1.0)))


def replaced(s, **columns):
    """The state with one job."""
    return s._replace(**{name: np.array([value]) for name, value in columns.items()})


# -- does its key move? --------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "rank",
    [
        lambda s, job, now: s.estimate[job] * s.instances[job] ** 0.5,
        lambda s, job, now: -s.priority[job] if s.gpu_milli[job] > 1000 else WEIGHT,
        lambda s, job, now: doubled(math.sqrt(s.estimate[job])) + TUPLE[1],
        lambda a, b, c: max(a.submit[b], a.estimate[b]),
        lambda s, job, now: s.capacity_cpu[0] + s.gpus[0],
    ],
)
def test_a_key_of_what_is_fixed_at_arrival_does_not_move(rank):
    assert not order(rank).moves


def calls_with_state(s, job, now):
    return doubled(s)


def renames(s, job, now):
    other = s
    return other.submit[job]


def with_a_function_inside(s, job, now):
    return min([s.submit[k] for k in range(job)])


def changes_its_job(s, job, now):
    job = job + 1
    return s.estimate[job]


@pytest.mark.parametrize(
    "rank",
    [
        lambda s, job, now: now,
        lambda s, job, now: s.estimate[job] - 2 * (now - s.submit[job]),
        lambda s, job, now: s.attained[job],
        lambda s, job, now: s.remaining[job],
        lambda s, job, now: s.usage[s.user[job]],
        lambda s, job, now: s.idle[0],
        lambda s, job, now: s.estimate[job + 1],
        lambda s, job, now: s.estimate[0],
        lambda s, job, now: s.estimate.sum(),
        lambda s, job, now: s[1][job],
        calls_with_state,
        renames,
        with_a_function_inside,
        changes_its_job,
    ],
)
def test_a_key_that_could_change_moves(rank):
    assert order(rank).moves


def test_only_what_is_of_nodes_users_other_jobs_or_work_done_can_change():
    changing = {"attained", "remaining", "usage", "free_cpu", "free_memory", "free_gpu", "idle", "most"}
    changing |= {"decayed", "fair_share"}
    own = {name: eval(f"lambda s, job, now: s.{name}[job]") for name in State._fields}
    assert {name for name in State._fields if order(own[name]).moves} == changing
    others = {name: eval(f"lambda s, job, now: s.{name}[0]") for name in State._fields}
    assert {name for name in State._fields if order(others[name]).moves} == changing | set(JOB_COLUMNS)


# -- what is refused -----------------------------------------------------------------------------------------------


def writes(s, job, now):
    s.submit[job] = 0.0
    return 0.0


def sorts(s, job, now):
    s.submit.sort()
    return 0.0


def fills_through_another_name(s, job, now):
    return np.add(s.submit, 1.0, s.submit)[0]


def prints(s, job, now):
    print(job)
    return 0.0


def imports(s, job, now):
    import math

    return math.pi


def changes_a_global(s, job, now):
    global WEIGHT
    WEIGHT = 3.0
    return WEIGHT


def sometimes_nothing(s, job, now):
    return 1.0 if now > 3 else None


def yields(s, job, now):
    yield 1.0


def raises(s, job, now):
    if job == 5:
        raise ValueError
    return 1.0


REFUSED = [
    (writes, "writes to the state|destination is read-only"),
    (sorts, "writes: `.sort`"),
    (fills_through_another_name, "does not compile: there is no such operation|is read-only"),
    (prints, "uses `print`"),
    (imports, "it imports `math`"),
    (changes_a_global, "it changes the global `WEIGHT`"),
    (sometimes_nothing, "returns nothing in some of its branches|returns .* a NoneType"),
    (yields, "it yields"),
    (raises, "raises ValueError"),
    (lambda s, job, now: random.random(), r"uses `random\.random`"),
    (lambda s, job, now: np.random.rand(), r"uses `np\.random\.rand`"),
    (lambda s, job, now: by_chance(1.0), r"uses `np\.random\.rand`"),
    (lambda s, job, now: time.time(), r"uses `time\.time`"),
    (lambda s, job, now: input(), "uses `input`"),
    (lambda s, job, now: LIST[0], "reads `LIST`, a list that could change"),
    (lambda s, job, now: TABLE[0], "reads `TABLE`, a dict that could change"),
    (lambda s, job, now: ARRAY[0], "reads `ARRAY`, an array that could change"),
    (lambda s, job, now: nowhere, "uses `nowhere`, which is not defined"),  # noqa: F821
    (lambda s, job, now: math.sinus(1), r"uses `math\.sinus`, which is not there"),
    (
        lambda s, job, now: s.submitted[job],
        "the state has no `submitted`; did you mean `submit`\\?|no attribute 'submitted'",
    ),
    (
        lambda s, job, now: s.runtime[job],
        "the state has no `runtime`; did you mean `estimate`\\?|no attribute 'runtime'",
    ),
    (
        lambda s, job, now: s.submit[job] + "s",
        r"there is no such operation: add\(float64, Literal\[str\]\(s\)\)|raises .*TypeError",
    ),
    (lambda s, job, now: None, "returns nothing|returns .* a NoneType"),
    (lambda s, job, now: "first", "returns something that is not a number"),
    (lambda s, job, now: (1.0, 2.0), "returns something that is not a number"),
    (lambda s, job, now: 1j, "returns something that is not a number"),
    (lambda s, job, now: math.nan, "returns NaN, asked for job 0"),
    (lambda s, job, now: s.estimate[job] / s.estimate[job], "(returns NaN|divides by 0), asked for job"),
    (lambda s, job, now: 1 / (now - s.submit[job]), "divides by 0, asked for job"),
    (lambda s, job, now: s.instances[job] // s.priority[job], "divides by 0, asked for job"),
    (lambda s, job, now: s.estimate[job + 100], "raises IndexError"),
    (lambda s, job, now: math.log(s.estimate[job]), "math domain error"),
]


@pytest.mark.parametrize(("rank", "says"), REFUSED, ids=[says for _, says in REFUSED])
def test_what_is_not_a_pure_ranking_is_refused_with_a_hint(rank, says):
    with pytest.raises(fleetlab.PolicyError, match=says) as e:
        check_order(order(rank))
    assert e.value.hint
    assert "\n" not in str(e.value)


@pytest.mark.skipif(bool(config.DISABLE_JIT), reason="nothing is compiled")
def test_a_function_that_is_not_compiled_cannot_be_called():
    with pytest.raises(fleetlab.PolicyError, match="calls `plain_function`, which is not compiled"):
        check_order(lambda s, job, now: plain_function(1))


@pytest.mark.skipif(bool(config.DISABLE_JIT), reason="nothing is compiled")
def test_a_policy_that_differs_when_compiled_is_refused():
    with pytest.raises(fleetlab.PolicyError, match=r"says 0.0 when compiled, but as plain Python it says 1\.18"):
        check_order(lambda s, job, now: 2**70)


@pytest.mark.parametrize(
    "rank", [lambda s, job: 0.0, lambda *words: 0.0, lambda s, job, now, more=1: 0.0, lambda s, job, *, now: 0.0]
)
def test_a_policy_takes_three_things(rank):
    with pytest.raises(fleetlab.PolicyError, match="takes s, job, now, not:"):
        order(rank)


@pytest.mark.parametrize("thing", [3, "sjf", print, BY_NAME["sjf"], math])
def test_only_a_function_becomes_a_policy(thing):
    with pytest.raises(fleetlab.PolicyError, match="takes a function"):
        placement(thing)


@pytest.mark.parametrize("trouble", ["s.submit[job + 100]", "1 / (job - now)", "math.nan"])
def test_a_loop_that_meets_no_number_says_so_wherever_it_is(trouble):
    fill = order(eval(f"lambda s, job, now: {trouble} if job == now else 1.0")).compiled()
    s = list(check._states())[1]
    for at in range(6):
        found = [fill(s, np.arange(n), n, float(at), np.empty(6)) for n in (at, at + 1, 6)]
        assert found == [1, 0, 0]


def test_a_policy_that_remembers_is_refused():
    class Counter(order):
        def compiled(self):
            def fill(s, jobs, n, now, keys):
                keys[:n] = self.count = getattr(self, "count", 0) + 1
                return 1

            return fill

    with pytest.raises(fleetlab.PolicyError, match=r"not deterministic: asked twice for the same, it says 1.0 and 2.0"):
        check_order(Counter(lambda s, job, now: 1.0))


def test_a_decorated_policy_is_still_a_function(s):
    assert BY_NAME["sjf"](s, 1, 0.0) == 20.0


def test_a_function_that_is_compiled_already_is_a_policy_too(s):
    assert first(order(njit(lambda s, job, now: -s.submit[job])), s) == 2


def test_a_policy_may_call_compiled_functions_also_such_as_call_themselves():
    check_order(lambda s, job, now: halved(s.estimate[job]))


# -- where ---------------------------------------------------------------------------------------------------------


def test_a_place_policy_ranks_nodes(s):
    roomy = placement(lambda s, job, node: -s.free_cpu[node] + s.cpu_milli[job])
    scores = np.empty(2)
    assert roomy.compiled()(s, np.arange(2), 2, 1, scores)
    assert scores.tolist() == [-7000.0, -6000.0]


@pytest.mark.parametrize(
    ("rank", "says"),
    [
        (
            lambda s, job, node: s.free_gpu[node] / s.gpus[node],
            "placement policy `<lambda>` (divides by 0|returns NaN)",
        ),
        (lambda s, job, node: s.free_cpu[node + 1], "raises IndexError.*on node"),
        (lambda s, job, node: random.random(), r"uses `random\.random`"),
    ],
)
def test_a_place_policy_that_is_not_a_pure_ranking_is_refused(rank, says):
    with pytest.raises(fleetlab.PolicyError, match=says):
        check_placement(rank)


def test_a_place_policy_is_asked_only_about_nodes_that_hold_the_job():
    check_placement(lambda s, job, node: math.sqrt(s.free_cpu[node] - s.cpu_milli[job]))


@pytest.mark.parametrize(
    ("verb", "policy"), [(check_placement, BY_NAME["sjf"]), (check_order, placement(lambda s, t, n: 0.0))]
)
def test_a_check_wants_its_own_kind(verb, policy):
    with pytest.raises(fleetlab.PolicyError, match=r"here an? (order|placement) is asked for"):
        verb(policy)


# -- words to policies ---------------------------------------------------------------------------------------------


@pytest.fixture
def here(tmp_path, monkeypatch, request):
    """A folder to import from; what is written there is a module of this test alone."""
    monkeypatch.chdir(tmp_path)
    name = f"mine_{abs(hash(request.node.name))}"

    def write(text):
        (tmp_path / f"{name}.py").write_text(dedent(text), "utf-8")
        return name

    yield write
    sys.modules.pop(name, None)


def test_a_policy_is_found_in_the_current_folder_and_the_path_is_left_as_it_was(here):
    module = here("import fleetlab.sim.policy as p\n\n@p.order\ndef mine(s, job, now):\n    return 0.0\n")
    before = list(sys.path)
    assert (load(f"{module}:mine", "order").name, sys.path) == ("mine", before)


def test_a_changed_file_or_one_of_that_name_in_another_folder_is_read_again(tmp_path, monkeypatch):
    """A notebook stays open while files change; what it simulates is what workers would read."""
    values = []
    for folder, weight in (("a", 1.0), ("a", 2.0), ("b", 3.0)):
        (tmp_path / folder).mkdir(exist_ok=True)
        monkeypatch.chdir(tmp_path / folder)
        Path("our_helper.py").write_text(f"WEIGHT = {weight}\n")
        Path("our_weights.py").write_text(
            "import our_helper\n\n\ndef mine(s, job, now):\n    return our_helper.WEIGHT\n"
        )
        values.append(load("our_weights:mine", "order").rank(None, 0, 0.0))
        assert load("our_weights:mine", "order").rank.__globals__ is vars(sys.modules["our_weights"])
    for name in ("our_helper", "our_weights"):
        del sys.modules[name]
    assert values == [1.0, 2.0, 3.0]


def test_a_plain_function_becomes_a_policy(here):
    assert isinstance(load(here("def mine(s, job, node):\n    return 0.0\n") + ":mine", "placement"), placement)


@pytest.mark.parametrize("kind", ["order", "placement"])
def test_each_built_in_name_is_known(kind):
    assert [getattr(load(name, kind), "name", name) for name in WORDS[kind].menu.names] == list(WORDS[kind].menu.names)


@pytest.mark.parametrize(
    ("text", "name", "says", "hint"),
    [
        ("x = 1", "mine", "is not there", "no function with `@order`"),
        ("mine = 1", "mine", "is not a policy", "no function"),
        ("import nothing_of_that_name", "mine", "cannot be imported: ModuleNotFoundError", "line 1 "),
        ("x = 1\nx = y", "mine", "cannot be imported: NameError", "line 2 "),
        ("x = (", "mine", "cannot be imported: SyntaxError", "line 1 "),
        ("raise SystemExit(3)", "mine", "cannot be imported: SystemExit", "line 1 "),
        ("from fleetlab.sim.orders import *", "mine", "is not there", "that module has fifo, sjf"),
        (
            "from fleetlab.sim.policy import *\nmine = placement(lambda s, t, n: 0)",
            "mine",
            "is a placement, not an order",
            "--pl",
        ),
        ("from fleetlab.sim.policy import *\nmine = order(lambda s: 0)", "mine", "takes s, job, now", "def mine"),
    ],
)
def test_a_module_without_the_policy_says_what_is_wrong(text, name, says, hint, here):
    with pytest.raises(fleetlab.PolicyError, match=says) as e:
        load(f"{here(text)}:{name}", "order")
    assert hint in e.value.hint


@pytest.mark.parametrize(
    ("words", "kind", "says"),
    [
        ("sjff", "order", "no order by that name: `sjff`; did you mean sjf?"),
        ("best-fit", "placement", "no placement by that name: `best-fit`; did you mean best_fit?"),
        ("own", "placement", "no placement by that name"),
        ("no_such_module_here:mine", "order", "no module by that name: `no_such_module_here`"),
        ("fleetlab.nothing:mine", "order", "no module by that name: `fleetlab.nothing`"),
        ("mine.py:rank", "order", "is named MODULE:NAME"),
        ("a/b:rank", "order", "is named MODULE:NAME"),
        ("module:", "order", "is named MODULE:NAME"),
        (":rank", "order", "is named MODULE:NAME"),
    ],
)
def test_words_that_mean_no_policy_are_refused(words, kind, says):
    with pytest.raises(fleetlab.PolicyError) as e:
        load(words, kind)
    assert says in str(e.value)


# -- compiled once -------------------------------------------------------------------------------------------------

LOOP = """
from numba import njit

@njit(cache=True)
def run(fill, place, s, nodes, jobs, keys):
    nodes[0].free_cpu += 1
    return fill(s, jobs, len(jobs), 5.0, keys)
"""
TRY = """
import sys
import numpy as np
import polars as pl
import fleetlab
from fleetlab.sim.world import world
from fleetlab.sim.policy import NO_PLACE, order, state_of
from loop import run

job = pl.DataFrame({"parent": [0, 1], "submit": [0.0, 1.0], "runtime": [1.0, 7.0], "gpu_milli": [1000, 1000]})
policies = [order(eval("lambda s, job, now: " + text)).compiled() for text in sys.argv[1:]]
for nodes in (1, 3):
    w = world(fleetlab.Workload.of(job, source="test"), fleetlab.Cluster.uniform(nodes, 8))
    s = state_of(w, w.nodes, estimate=w.estimate, attained=w.submit, remaining=w.submit, usage=np.zeros(1))
    for policy in policies:
        keys = np.empty(2)
        before = int(s.free_cpu[0])
        run(policy, NO_PLACE, s, w.nodes, np.arange(2), keys)
        print(*keys, s.free_cpu[0] - before)
stats = getattr(run, "stats", None)
if stats:
    print("compiled", sum(stats.cache_misses.values()), "found", sum(stats.cache_hits.values()))
"""


def tried(folder, *policies, **env):
    done = subprocess.run(
        [sys.executable, "try.py", *policies], cwd=folder, env=os.environ | env, capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr
    return done.stdout.splitlines()


@pytest.mark.skipif(bool(config.DISABLE_JIT), reason="nothing is compiled")
def test_a_loop_is_compiled_once_for_all_policies_and_found_again(tmp_path):
    (tmp_path / "loop.py").write_text(LOOP)
    (tmp_path / "try.py").write_text(TRY)
    one = tried(tmp_path, "s.submit[job]", "-s.estimate[job]")
    two = tried(tmp_path, "now - s.submit[job]")
    assert one == ["0.0 1.0 1", "-1.0 -7.0 1"] * 2 + ["compiled 1 found 0"]
    assert two == ["5.0 4.0 1"] * 2 + ["compiled 0 found 1"]
    assert tried(tmp_path, "now - s.submit[job]", NUMBA_DISABLE_JIT="1") == two[:2]


def test_columns_of_nodes_come_last():
    assert State._fields[-len(NODE_COLUMNS) :] == NODE_COLUMNS
