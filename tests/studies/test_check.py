"""A configuration tested like code: rules are read, hold or break, and the files for a pull request say which."""

import xml.etree.ElementTree as ET

import pytest

import fleetlab
from fleetlab.core import WorkloadError
from fleetlab.studies.compare.check import BREAKS, HOLDS, USUAL, Rule, read_rules

SLOWER = "SchedulerParameters=bf_interval=600,batch_sched_delay=60"
STRICT = (
    Rule("mean wait"),
    Rule("P90 wait", "team", 0.2),
    Rule("GPU allocation", limit=0.5),
    Rule("unschedulable jobs"),
)


@pytest.fixture(scope="module")
def slower():
    return fleetlab.check("sample", conf=SLOWER, rules=STRICT, replicas=1, workers=0)


def test_a_change_that_makes_jobs_wait_longer_fails(slower):
    verdicts = dict(slower.frames["rules"].filter(who="all").select("rule", "verdict").iter_rows())
    assert verdicts["mean wait does not worsen"] == BREAKS
    assert verdicts["no job becomes unschedulable"] == HOLDS
    assert not slower.passed
    assert "fails" in slower.findings[0]


def test_every_team_with_enough_jobs_has_a_row(slower):
    rows = slower.frames["rules"].filter(rule="no team's P90 wait worsens by more than 20 %")
    assert rows.height > 1
    assert rows["jobs"].min() >= 30
    assert {*rows["verdict"]} <= {HOLDS, BREAKS}


def test_the_same_change_passes_where_the_rules_allow_it():
    allowed = fleetlab.check("sample", conf=SLOWER, rules=[Rule("mean wait", limit=1e6)], replicas=1, workers=0)
    assert allowed.passed


def test_junit_has_a_test_for_each_rule_and_class_and_a_failure_for_each_that_breaks(slower):
    suite = ET.fromstring(slower.junit())
    assert len(suite) == slower.frames["rules"].height == int(suite.attrib["tests"])
    assert len(suite.findall("testcase/failure")) == int(slower.frames["rules"]["fails"].sum())


def test_markdown_shows_rules_and_the_picture_beside_it(slower, tmp_path):
    slower.write(tmp_path / "check.md", tmp_path / "check.xml")
    text = (tmp_path / "check.md").read_text()
    assert "| no job becomes unschedulable | all |" in text
    assert "](check.svg)" in text
    assert (tmp_path / "check.svg").read_text().startswith("<svg")
    assert (tmp_path / "check.xml").read_text().startswith("<?xml")


def test_the_command_ends_with_status_1(command, tmp_path):
    done = command("check", "sample", "--conf", SLOWER, "--replicas", "1", "--junit", tmp_path / "out.xml")
    assert done.returncode == 1, done.stderr
    assert "fails" in done.stdout
    assert (tmp_path / "out.xml").exists()


def test_what_changes_nothing_is_refused():
    with pytest.raises(WorkloadError, match="nothing changes"):
        fleetlab.check("sample", conf="KillWait=5", replicas=1, workers=0)


def test_without_a_file_the_usual_rules_hold():
    assert read_rules(None) == USUAL
    assert [rule.title for rule in USUAL] == [
        "no team's P90 wait worsens by more than 20 %",
        "GPU allocation does not fall by more than 1 %",
        "no job becomes unschedulable",
    ]


def test_rules_are_read(tmp_path):
    path = tmp_path / "rules.toml"
    path.write_text(
        '[[rule]]\nmetric = "P95 wait"\nof = "partition"\nworsens_at_most = 60\nundecided = "fail"\nleast_jobs = 5\n'
    )
    assert read_rules(path) == (Rule("P95 wait", "partition", 60.0, relative=False, least_jobs=5, undecided="fail"),)


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("", "no rules"),
        ("rule = 5", "no rules"),
        ('[[rule]]\nmetric = "P91 wait"', "P9"),
        ('[[rule]]\nmetric = "P90 wait"\nof = "planet"', "planet"),
        ('[[rule]]\nmetric = "P90 wait"\nworsens_at_most = "-5 %"', "not a bound"),
        ('[[rule]]\nmetric = "P90 wait"\nworsens_at_most = "nan"', "not a bound"),
        ('[[rule]]\nmetric = "P90 wait"\nworst = 5', "no key `worst`"),
        ('[[rule]]\nmetric = "GPU allocation"\nof = "team"', "of all jobs"),
        ("[[rule", "not TOML"),
    ],
)
def test_rules_that_cannot_be_read_are_named(tmp_path, text, said):
    path = tmp_path / "rules.toml"
    path.write_text(text)
    with pytest.raises(WorkloadError, match=said):
        read_rules(path)
