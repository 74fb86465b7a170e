"""A study file: every combination once, every mistake told, and an address for everything that decides a result."""

import pytest

from fleetlab import FleetlabError, Study
from fleetlab.studies.sweep._plan import Plan

from .conftest import saved


def told(**words):
    return Study.of({"traces": ["builtin:500"]} | words)


def plan(study):
    return Plan.of(study, lambda *_: None)


# -- what is played --------------------------------------------------------------------------------------------------


def test_a_study_is_every_combination_of_its_words():
    study = told(loads=[0.5, 1], nodes=["as it is", "+10%"], simulate={"order": ["fifo", "sjf"], "placement": "fgd"})
    assert len(study.cases()) == 2 * 2 * 2
    assert {case.words["placement"] for case in study.cases()} == {"fgd"}
    assert {case.words["backfill"] for case in study.cases()} == {"greedy"}


def test_listed_rules_are_played_as_listed_and_none_twice():
    study = told(simulate=[{"order": "sjf", "estimate": "user"}, {"order": ["fifo", "sjf"]}, {"order": "fifo"}])
    rules = [(case.words["order"], case.words["estimate"]) for case in study.cases()]
    assert rules == [("sjf", "user"), ("fifo", "oracle"), ("sjf", "oracle")]


def test_a_case_is_held_against_the_one_that_differs_in_the_named_words_alone():
    study = told(loads=[1, 2], simulate={"order": ["fifo", "sjf"]}, compare={"against": {"order": "fifo"}})
    pairs = [(case.load, case.words["order"], base.load, base.words["order"]) for case, base in
             study.compare.pairs(study.cases())]  # fmt: skip
    assert pairs == [(1.0, "sjf", 1.0, "fifo"), (2.0, "sjf", 2.0, "fifo")]


def test_looks_are_few_and_never_beyond_the_most_seeds():
    study = told(seeds={"least": 6, "most": 50, "within": "5%"})
    assert study.seeds.looks() == [6, 9, 14, 21, 32, 48]
    assert sum(study.seeds.spent(k, 0.05) for k in range(1, 1000)) == pytest.approx(0.05, rel=2e-3)


@pytest.mark.parametrize(
    ("words", "said"),
    [
        ({"trace": []}, "no such key in the study: `trace`"),
        ({"traces": []}, "traces is a list of names"),
        ({"loads": [0]}, "loads are numbers"),
        ({"loads": [float("nan")]}, "loads are numbers"),
        ({"loads": "fast"}, "loads are numbers"),
        ({"draw": "lots"}, "no way to draw"),
        ({"seeds": 0}, "seeds are a number of them, from 1 to a million, or a list"),
        ({"seeds": [1, -1]}, "seeds are a number of them, from 1 to a million, or a list"),
        ({"seeds": True}, "seeds are a number of them, from 1 to a million, or a list"),
        ({"seeds": {"least": 2}}, "3 ≤ least ≤ most"),
        ({"seeds": {"within": "soon"}}, "within is a number above 0"),
        ({"seeds": {"upto": 3}}, "no such key in the table [seeds]"),
        ({"simulate": {"orders": "fifo"}}, "no such key in the table [simulate]: `orders`"),
        ({"simulate": {"order": 3}}, "[simulate] order cannot be: 3"),
        ({"simulate": {"preemption": "yes"}}, "[simulate] preemption cannot be"),
        ({"simulate": "fifo"}, "[simulate] is a table"),
        ({"simulate": {"events": "no-such.toml"}}, "cannot read the file of `events`"),
        ({"compare": {"against": {"order": "fifo"}}}, "no case of the study"),
        ({"compare": {"against": {"ordre": "fifo"}}}, "no such key in the words to compare against"),
        ({"compare": {"against": {"order": ["fifo"]}}}, "`against` has one value for order"),
        ({"compare": {"against": {"load": "high"}}}, "`against` has one value for load"),
        ({"compare": {"against": {"nodes": {"T4": 1}}}}, "`against` has one value for nodes"),
        ({"compare": {"sure": 2.0}}, "`sure` is a probability"),
        ({"compare": []}, "[compare] is a table"),
        ({"loads": [k / 1000 for k in range(1, 1000)], "seeds": 10**6}, "more than 10,000,000 cells"),
        ({"simulate": {"quota": list(range(10**4)), "until": list(range(10**4))}}, "more than 10,000,000 cells"),
    ],
)
def test_a_mistake_in_a_study_is_said_before_work_starts(words, said):
    with pytest.raises(FleetlabError) as e:
        told(**words)
    assert said in str(e.value)
    assert e.value.hint


@pytest.mark.parametrize("text", ["traces = [", "\xff", "traces = 3"])
def test_what_is_no_study_is_said_to_be_none(tmp_path, text):
    (tmp_path / "s.toml").write_bytes(text.encode("latin-1"))
    with pytest.raises(FleetlabError):
        Study.read(tmp_path / "s.toml")


@pytest.mark.parametrize(
    ("words", "said"),
    [
        ({"nodes": ["T4 +1"]}, "no pool or GPU type by that name: `T4`"),
        ({"nodes": ["-1"]}, "cannot become: 0"),
        ({"nodes": ["more"]}, "not an edit of nodes"),
        ({"traces": ["nowhere"]}, "no saved trace"),
        ({"traces": ["trace"], "draw": "new"}, "only a built-in trace"),
        ({"cluster": "none.toml"}, "cannot read the cluster file"),
    ],
)
def test_what_the_traces_do_not_bear_is_said_before_work_starts(study, words, said):
    with pytest.raises(FleetlabError, match=said):
        plan(study(**words))


@pytest.mark.parametrize(
    ("words", "said"),
    [
        ({"simulate": {"order": "sjff"}}, "no order policy by that name"),
        ({"simulate": {"backfill": "lax"}}, "no backfill by that name"),
        ({"simulate": {"estimate": "guess"}}, "no estimate by that name"),
        ({"simulate": {"slowdown": "h100", "sharing": "mps"}}, "no profile ships"),
        ({"simulate": {"placement": "nowhere:mine"}}, "no module by that name"),
        ({"compare": {"metrics": ["mean weight"]}}, "no metric by that name: `mean weight`"),
    ],
)
def test_a_wrong_word_is_found_in_the_rehearsal(study, words, said):
    with pytest.raises(FleetlabError, match=said):
        plan(study(**words)).rehearse()


# -- addresses -------------------------------------------------------------------------------------------------------


def keys(study):
    ready = plan(study)
    return [ready.cell(case, seed).key for case in study.cases() for seed in study.seeds.listed]


def test_the_same_words_have_the_same_address(study):
    spelt_out = study(loads=[1.0], nodes="as it is", simulate={"order": ["fifo", "sjf"], "placement": "best_fit"})
    assert keys(study()) == keys(spelt_out)


@pytest.mark.parametrize(
    "words",
    [
        {"loads": [1.1]},
        {"nodes": ["+1"]},
        {"seeds": [7]},
        {"draw": "none"},
        {"simulate": {"order": "fifo", "backfill": "easy"}},
        {"simulate": {"order": "fifo", "quota": 2}},
        {"simulate": {"order": "fifo", "preemption": True}},
    ],
)
def test_whatever_decides_a_result_has_an_address_of_its_own(study, words):
    usual = {"simulate": {"order": "fifo"}, "seeds": [0]}
    assert set(keys(study(**usual))).isdisjoint(keys(study(**usual | words)))


def test_a_changed_trace_is_another_trace(study, trace):
    before = keys(study())
    saved(trace, 301)
    assert set(before).isdisjoint(keys(study()))


def test_a_changed_file_is_another_rule(study, trace):
    words = {"simulate": {"events": "faults.toml"}}
    (trace.parent / "faults.toml").write_text("[[faults]]\nmtbf = 86400\nmttr = 60\n")
    before = keys(study(**words))
    assert before == keys(study(**words))
    (trace.parent / "faults.toml").write_text("[[faults]]\nmtbf = 86400\nmttr = 61\n")
    assert set(before).isdisjoint(keys(study(**words)))


def test_a_changed_policy_of_ones_own_is_another_rule(study, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    text = "from fleetlab import order\n\n@order\ndef mine(s, job, now):\n    return s.submit[job]\n"
    (tmp_path / "our_orders.py").write_text(text)
    before = keys(study(simulate={"order": "our_orders:mine"}))
    (tmp_path / "our_orders.py").write_text(text.replace("return ", "return -"))
    assert set(before).isdisjoint(keys(study(simulate={"order": "our_orders:mine"})))
