"""`make audit`: known vulnerabilities of installed packages, from the online database or an offline one."""

import json
import subprocess
import sys
import zipfile
from importlib.metadata import version

import pytest
from release.audit import affects, installed, look_up, normal

NOWHERE = "http://127.0.0.1:1/"  # nothing listens there


def record(name="numpy", **affected):
    return {"id": "TEST-1", "modified": "2026-10-01T00:00:00Z",
            "affected": [{"package": {"ecosystem": "PyPI", "name": name}, **affected}]}  # fmt: skip


def between(*events):
    return {"ranges": [{"type": "ECOSYSTEM", "events": list(events)}]}


@pytest.fixture
def database(tmp_path):
    def write(*records):
        folder = tmp_path / "advisories" / "vulns"
        folder.mkdir(parents=True)
        for k, one in enumerate(records):
            (folder / f"{k}.json").write_text(json.dumps(one))
        return folder.parent

    return write


def audit(*options):
    done = [sys.executable, "-m", "release.audit", *map(str, options)]
    return subprocess.run(done, capture_output=True, text=True, check=False)


@pytest.mark.parametrize(
    ("own", "inside"), [("0.9", False), ("1.0", True), ("1.9", True), ("1.10", False), ("2.0", True), ("2.1", False)]
)
def test_a_version_is_affected_between_what_introduced_and_what_fixed_it(own, inside):
    events = {"introduced": "1.0"}, {"fixed": "1.10"}, {"introduced": "2.0"}, {"last_affected": "2.0"}
    assert affects(between(*events), own) is inside


def test_a_version_that_a_record_names_is_affected():
    assert affects({"versions": ["1.2.3"]}, "1.2.3")
    assert not affects({"versions": ["1.2.3"]}, "1.2.4")


def test_names_are_compared_as_indexes_do():
    assert "pyyaml" in installed()
    assert normal("Ruamel.Yaml_clib") == "ruamel-yaml-clib"


def test_where_nothing_online_answers_the_offline_database_is_read_and_named(database):
    folder = database(record(**between({"introduced": "0"})))
    done = audit("--online", NOWHERE, "--database", folder)
    assert done.returncode == 1
    assert f"asked: {folder}, 1 records, the newest of 2026-10-01; online: it does not answer" in done.stdout
    assert f"numpy {version('numpy')}: TEST-1" in done.stdout


def test_without_a_known_vulnerability_the_status_is_0(database):
    folder = database(record(**between({"introduced": "0"}, {"fixed": "0.1"})))
    assert audit("--only-offline", "--database", folder).returncode == 0


def test_without_any_database_it_is_an_error_and_no_clean_report(tmp_path):
    done = audit("--online", NOWHERE)
    assert done.returncode == 2
    assert "error: no database of vulnerabilities" in done.stderr
    (tmp_path / "empty").mkdir()
    assert audit("--only-offline", "--database", tmp_path / "empty").returncode == 2


def test_a_zip_and_yaml_are_databases_too_and_what_was_withdrawn_is_not_known(tmp_path):
    packed = tmp_path / "all.zip"
    with zipfile.ZipFile(packed, "w") as archive:
        archive.writestr("a/1.yaml", "id: TEST-2\naffected:\n- package: {name: NumPy}\n  versions: ['1.0']\n")
        archive.writestr("2.json", json.dumps(record(versions=["1.0"]) | {"withdrawn": "2026-01-01T00:00:00Z"}))
    found, count, _ = look_up({"numpy": "1.0"}, packed)
    assert (found, count) == ({"numpy": ["TEST-2"]}, 2)
