"""A policy search: what is planted is found, what cannot be beaten is said to stand, and held-out weeks stay unseen."""

import json
import math
import sys
from dataclasses import replace

import numpy as np
import polars as pl
import pytest

import fleetlab
from fleetlab import Cluster, FleetlabError, SavedResult, Scenario, Workload, order
from fleetlab.core import as_json
from fleetlab.studies.tune import terms
from fleetlab.studies.tune.search import FILE, Journal, search
from fleetlab.studies.tune.terms import BUILT_IN, WEIGHTED, Space, words_of
from fleetlab.studies.tune.tune import split

from .conftest import DAY, as_trace, bursts, line

FEW = ("fifo", "sjf", "smallest")


def small(trace, **options):
    return fleetlab.tune(trace, **{"days": 1, "warm": 0, "trials": 20, "against": FEW, "estimate": "oracle"} | options)


# -- what is found -------------------------------------------------------------------------------------------------


def test_in_a_line_of_known_run_times_nothing_beats_the_shortest_first(single):
    found = small(single, trials=30)
    assert not found.better
    assert found.findings[0].startswith("no policy is better than the best baseline, sjf/")
    apart = found.summary()[0]
    assert apart.low <= 0 <= apart.high


def test_a_search_that_is_told_no_built_in_policy_finds_the_shortest_first_by_itself(single):
    train, _ = split(Scenario.of(single), train=None, held_out=None, days=1, warm=0)

    def wait(words):
        return float(np.mean(list(train.means("wait", **words).values())))

    space = Space.of(train.scenario.workload, ("best_fit",))
    tried = search(
        space, lambda params: wait(words_of(params)), [],
        trials=40, seed=1, journal=Journal("alone"), progress=lambda *_: None,
    )  # fmt: skip
    shortest, first_come = wait({"order": "sjf"}), wait({"order": "fifo"})
    assert min(trial.value for trial in tried) < shortest + 0.05 * (first_come - shortest)


def test_where_all_jobs_are_alike_nothing_is_better():
    found = small(line(runtime=1.0), against=())
    assert not found.better
    assert found.findings == (
        "no policy is better than the best baseline, fifo/best_fit: on held-out weeks the tuned one is the same",
        "in training no trial is better either",
    )
    assert set(found.tables()["policies"]["tuned is"]) == {"", "no difference"}


def test_a_weighting_that_no_built_in_policy_has_is_found_and_holds():
    found = small(bursts(), backfill="none", trials=40, against=(*FEW, "largest", "aging"))
    assert found.better
    assert found.findings[0].startswith("the tuned policy is better than every baseline: on held-out weeks mean wait −")
    weights = terms.weights_of(found.params)
    keys = [_key(weights, gpus, seconds) for gpus, seconds in ((1, 600.0), (8, 400.0), (1, 9000.0))]
    assert keys == sorted(keys)


def _key(weights, gpus, seconds):
    """The rank of a job that came at 0, without CPU or users, by hand."""
    by_run = weights["log estimate"] * math.log1p(seconds) + weights["estimate"] * seconds / 3600
    return by_run + weights["log GPUs"] * math.log1p(gpus)


# -- weeks ---------------------------------------------------------------------------------------------------------


def test_weeks_are_cut_by_submission_and_a_warm_up_does_not_count():
    submit = [0.0, 0.5, 1.2, 1.8, 2.5, 3.1, 3.6, 3.95]
    frame = pl.DataFrame({"submit": [day * DAY for day in submit], "runtime": 60.0}).with_columns(gpu_milli=1000)
    scenario = Scenario.of(as_trace(frame, Cluster.uniform(1, 1)))
    train, held = split(scenario, train=1, held_out=2, days=1, warm=0.3)
    # Of four days the last two are held out and the second is learnt on; three tenths of a day before each warm it up.
    assert (train.first, train.week.tolist()) == (1, [0, 0])
    assert (held.first, held.week.tolist()) == (2, [-1, 0, 1, 1, 1])
    assert held.scenario.workload.frame["submit"].to_list() == pytest.approx([(day - 1.8) * DAY for day in submit[3:]])


def test_the_first_week_of_a_trace_gives_its_own_warm_up():
    frame = pl.DataFrame({"submit": [k * DAY / 10 for k in range(30)], "runtime": 1.0}).with_columns(gpu_milli=1000)
    train, _ = split(Scenario.of(as_trace(frame, Cluster.uniform(1, 1))), train=1, held_out=2, days=1, warm=0.25)
    assert train.week.tolist() == [-1, -1, -1, *[0] * 7]


def test_the_mean_of_a_week_by_hand():
    # In week 0 two come at once and one waits 100 s; in week 1 nobody waits.
    frame = pl.DataFrame({"submit": [0.0, 0.0, DAY, 1.95 * DAY, 2.95 * DAY], "runtime": 100.0})
    trace = as_trace(frame.with_columns(gpu_milli=1000), Cluster.uniform(1, 1))
    train, held = split(Scenario.of(trace), train=1, held_out=2, days=1, warm=0)
    assert train.means("wait") == {0: 50}
    assert held.means("jct") == {1: 100, 2: 100}


def test_what_happens_in_held_out_weeks_changes_no_trial(mixed):
    frame = mixed.workload.frame
    later = pl.when(pl.col("submit") >= 3 * DAY).then(pl.col("runtime") * 5 + 77).otherwise("runtime")
    other = replace(mixed, workload=Workload.of(frame.with_columns(runtime=later), source="other"))
    one, two = (small(trace, trials=24, estimate="user", train_weeks=3, held_out=3) for trace in (mixed, other))
    assert one.tables()["trials"].equals(two.tables()["trials"])
    assert one.params == two.params
    assert not one.tables()["weeks"].equals(two.tables()["weeks"])


# -- the policy ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("estimate", ["oracle", "user"])
@pytest.mark.parametrize("order", [name for name in BUILT_IN if name != "fair"])
def test_terms_rank_as_the_built_in_order_that_they_stand_for(mixed, order, estimate):
    corner = Space.of(mixed.workload, ("fgd",)).params_of(order, "fgd")
    runs = [
        fleetlab.simulate(mixed.workload, mixed.cluster, **rules, estimate=estimate).jobs["start"]
        for rules in ({"order": order, "placement": "fgd"}, words_of(corner))
    ]
    assert runs[0].equals(runs[1])


def test_what_users_hold_counts_where_it_is_asked_for(mixed):
    space = Space.of(mixed.workload, ("best_fit",))
    fair = words_of(space.params_of("fair", "best_fit"))
    assert fair["order"].moves
    assert not words_of(space.params_of("sjf", "best_fit"))["order"].moves
    # Between jobs of one user the first come is first; the built-in `fair` looks again within a pass, so it differs.
    runs = [
        fleetlab.simulate(mixed.workload, mixed.cluster, **rules).jobs["wait"].mean()
        for rules in ({"order": "fifo"}, {"order": "fair"}, fair)
    ]
    assert abs(runs[2] - runs[1]) < abs(runs[2] - runs[0])


def test_every_weighted_policy_is_a_pure_ranking():
    weights = tuple(range(1, len(terms.ALL) + 1))
    fleetlab.check_order(terms.weighted_order, weights=weights)
    fleetlab.check_order(terms.weighted_share_order, weights=weights)
    fleetlab.check_placement(terms.weighted_placement, weights=weights)


def test_terms_that_tell_nobody_apart_are_left_out(single):
    space = Space.of(single.workload, ("best_fit",))
    assert "priority" not in {term.name for term in space.order}
    assert space.params_of("priority", "best_fit") is None
    assert space.params_of("fair", "best_fit") is None
    assert space.params_of("srpt", "best_fit") is None


@pytest.mark.parametrize("where", ["fgd", WEIGHTED])
def test_the_policy_file_plays_as_the_weights_do(mixed, where):
    params = {"submit": 0.4, "log estimate": 0.7, "no estimate": -0.3, "log GPUs": 0.2, "log CPU cores": -0.1}
    params |= {"priority": 0.3, "uses share": True, "user share": 0.6, "placement": where}
    params |= {term.name: 0.1 + 0.2 * k for k, term in enumerate(terms.PLACEMENT)} if where == WEIGHTED else {}
    written = {}
    exec(terms.policy_text(params), written)
    own = {"order": written["order"], "placement": written.get("placement", where)}
    runs = [fleetlab.simulate(mixed.workload, mixed.cluster, **rules).jobs for rules in (own, words_of(params))]
    assert runs[0].equals(runs[1])


@pytest.mark.parametrize("term", [t for t in terms.ALL if t.low < 0], ids=lambda term: term.name)
def test_the_policy_file_says_who_is_first_by_the_sign_of_a_weight(term):
    said = {
        knob: terms.policy_text({term.name: knob, "placement": WEIGHTED}).partition("  # ")[2].splitlines()[0]
        for knob in (0.5, -0.5)
    }
    assert said == {0.5: term.above, -0.5: term.below}
    words = [set(text.split()) for text in said.values()]
    pairs = [
        ("shortest", "longest"),
        ("last", "first"),
        ("fewest", "most"),
        ("least", "most"),
        ("weakest", "strongest"),
    ]
    assert tuple(w - words[1 - k] for k, w in enumerate(words)) in [({a}, {b}) for a, b in pairs]


# -- a search that is killed ---------------------------------------------------------------------------------------


class Enough(Exception):
    pass


def test_a_search_that_is_killed_goes_on_to_the_same_end(mixed, tmp_path):
    whole = small(mixed, trials=26, seed=3)
    counted = []

    def once(what, done, _):
        counted.append(done) if what == "searching: trials simulated" else None
        if what == "searching: trials simulated" and done in (4, 20) and counted.count(done) == 1:
            raise Enough

    for _ in range(2):
        with pytest.raises(Enough):
            small(mixed, trials=26, seed=3, store=tmp_path, progress=once)
    found = small(mixed, trials=26, seed=3, store=tmp_path, progress=once)
    assert found.tables()["trials"].equals(whole.tables()["trials"])
    assert found.findings == whole.findings
    assert counted == [*range(5), *range(4, 21), *range(20, 27)]


def bowl(params):
    """Cheap to ask, lowest where every knob is at three tenths."""
    return sum((float(v) - 0.3) ** 2 for v in params.values() if not isinstance(v, str))


@pytest.mark.parametrize(
    "left", ['{"search": "bowl", "tri', '{"search": "bowl", "trial": 8, "params": {}, "val', "\n\n"]
)
def test_a_trial_that_was_cut_off_and_half_a_line_change_nothing(tmp_path, left):
    space = Space(terms.ORDER, True, ("best_fit", "fgd", WEIGHTED))
    asked = []

    def dies(params):
        asked.append(params)
        if len(asked) == 9:
            raise Enough
        return bowl(params)

    def searched(score, journal):
        return search(space, score, [], trials=16, seed=2, journal=journal, progress=lambda *_: None)

    with pytest.raises(Enough):
        searched(dies, Journal("bowl", tmp_path))
    with (tmp_path / FILE).open("a") as f:
        f.write(left)
    assert searched(bowl, Journal("bowl", tmp_path)) == searched(bowl, Journal("alone"))
    assert searched(dies, Journal("bowl", tmp_path)) == searched(bowl, Journal("alone"))
    assert len(asked) == 9  # all sixteen were read again


def test_more_trials_go_on_and_another_question_begins_anew(mixed, tmp_path):
    asked = []

    def progress(what, done, _):
        asked.append(done) if what == "searching: trials simulated" else None

    short = small(mixed, trials=14, store=tmp_path)
    longer = small(mixed, trials=16, store=tmp_path, progress=progress)
    assert asked == [14, 15, 16]
    assert longer.tables()["trials"].head(14).equals(short.tables()["trials"])
    asked.clear()
    small(mixed, trials=14, goal="bounded_slowdown", store=tmp_path, progress=progress)
    assert asked[0] == 0


def test_the_same_seed_gives_the_same_answer(mixed):
    one, two, other = (small(mixed, trials=16, seed=seed) for seed in (5, 5, 6))
    assert as_json(one) == as_json(two)
    assert not one.tables()["trials"].equals(other.tables()["trials"])


# -- what it says --------------------------------------------------------------------------------------------------


def test_in_training_it_is_never_worse_than_what_the_terms_can_express(mixed):
    found = small(mixed, goal="bounded_slowdown")
    rows = {row["policy"]: row for row in found.tables()["policies"].iter_rows(named=True)}
    calm = [row["training"] for name, row in rows.items() if name != "tuned" and not row["preempts"]]
    assert rows["tuned"]["training"] <= min(calm)
    assert len(calm) == len(FEW) + 9  # each order, and nine more places by the best of them


def test_a_result_is_read_again_and_drawn(mixed, tmp_path):
    found = small(mixed)
    found.save(tmp_path / "out")
    saved = SavedResult.load(tmp_path / "out" / "tuned.json")
    assert saved.summary() == found.summary()
    drawn = found.figures()
    assert set(drawn["differences on held-out weeks"].frame["x"]) == set(found.tables()["policies"]["policy"]) - {
        "tuned"
    }
    assert drawn["search"].frame["x"].max() == 20
    assert "import fleetlab\n\n\n@fleetlab.order\ndef order(s, job, now):" in (tmp_path / "out/tuned.py").read_text()


def test_estimates_are_learned_unless_a_scenario_has_others(mixed):
    options = {"days": 1, "trials": 1, "against": ["fifo"]}
    estimates = [fleetlab.tune(x, **options).provenance.settings["estimate"] for x in (mixed, Scenario.of(mixed))]
    assert estimates == ["group", "oracle"]


def test_the_policy_of_the_scenario_is_a_baseline_and_its_other_words_hold_for_all(mixed):
    @order
    def newest(s, job, now):
        return -s.submit[job]

    scenario = Scenario.of(mixed, order=newest, quota=6, load=1.1, nodes="+1")
    found = small(scenario, trials=4)
    names = found.tables()["policies"]["policy"].to_list()
    assert sum("newest" in name for name in names) == 1
    assert found.provenance.settings["quota"] == 6
    plain = small(mixed, trials=4).tables()["policies"]
    assert set(plain["policy"]) < set(names)
    assert not set(plain["held out"]) & set(found.tables()["policies"]["held out"])


def test_a_series_of_the_trace_can_be_the_estimate(mixed):
    frame = mixed.workload.frame
    requested = frame.select("job", seconds=pl.col("runtime") * 2).lazy()
    trace = replace(mixed, series={"requested": requested})
    # Twice the run time ranks as the run time does.
    one, two = (fleetlab.tune(t, days=1, trials=1, against=["sjf"], estimate=name) for t, name in (
        (trace, "requested"), (mixed, "oracle"),
    ))  # fmt: skip
    assert one.tables()["policies"].equals(two.tables()["policies"])


@pytest.mark.parametrize(
    "options",
    [
        {"trials": 0},
        {"goal": "money"},
        {"days": math.nan},
        {"days": 0},
        {"warm": -1},
        {"held_out": 1},
        {"train_weeks": 0},
        {"train_weeks": 9},
        {"days": 30},
        {"days": 1e-6},
        {"seed": -1},
        {"against": ["sjff"]},
        {"against": ["srpt"]},
        {"estimate": "magic"},
        {"backfill": "nice"},
        {"until": 5.0},
        {"weights": [1.0]},
        {"events": [{"event": "drain", "begin": 1.0, "end": 2.0, "pool": "default"}]},
    ],
)
def test_what_cannot_be_searched_is_refused_with_a_hint(mixed, options):
    with pytest.raises(FleetlabError) as e:
        small(mixed, **options)
    assert e.value.hint


@pytest.mark.parametrize("jobs", [0, 1, 3])
def test_a_trace_with_next_to_nothing_in_it_is_refused(jobs):
    frame = pl.DataFrame(
        {"submit": [0.0] * jobs, "runtime": [1.0] * jobs}, schema={"submit": pl.Float64, "runtime": pl.Float64}
    )
    with pytest.raises(FleetlabError, match="too few weeks"):
        small(as_trace(frame, Cluster.uniform(1, 1)))


def test_a_trace_without_a_cluster_or_without_a_job_that_can_run_is_refused(mixed):
    with pytest.raises(FleetlabError, match="no cluster"):
        small(replace(mixed, cluster=None))
    frame = mixed.workload.frame.with_columns(runtime=pl.lit(None, dtype=pl.Float64))
    with pytest.raises(FleetlabError, match="no job of these weeks can run"):
        small(replace(mixed, workload=Workload.of(frame, source="nothing known")))


def test_one_held_out_week_with_jobs_is_not_enough_to_be_sure():
    submit = [0.0, *(k * 60.0 for k in range(100)), *(4.95 * 86_400.0 + k for k in range(100))]  # and nobody in between
    frame = pl.DataFrame({"submit": submit, "runtime": [60.0] * len(submit)}).with_columns(gpu_milli=pl.lit(1000))
    with pytest.raises(FleetlabError, match="too few weeks held out with jobs that count: 1"):
        small(as_trace(frame, Cluster.uniform(1, 1)), days=1, held_out=2, train_weeks=3, warm=0.0)


def test_a_store_that_is_a_file_is_refused_before_anything_is_played(mixed, tmp_path):
    (tmp_path / "file").write_text("mine")
    said = []
    with pytest.raises(FleetlabError, match="cannot keep trials"):
        small(mixed, store=tmp_path / "file", progress=lambda *step: said.append(step))
    assert not said


def test_lines_that_are_no_trials_are_passed_over(tmp_path):
    good = {"search": "a", "trial": 0, "params": {}, "value": 1.0}
    odd = [good | {"value": "low"}, good | {"trial": [0]}, good | {"params": 3}, good | {"more": 1}, 5, None]
    (tmp_path / FILE).write_text("\n".join(map(json.dumps, [*odd, good])))
    assert Journal("a", tmp_path).read() == [({}, 1.0)]


def test_without_the_extra_there_is_a_hint(mixed, monkeypatch):
    monkeypatch.setitem(sys.modules, "optuna", None)
    with pytest.raises(FleetlabError) as e:
        small(mixed)
    assert "fleetlab[tune]" in e.value.hint
