"""Where a command writes is looked at before it works: what cannot be written is an error at once."""

import pytest

from fleetlab import FleetlabError
from fleetlab.core.files import may_create

FILES = [
    ("simulate", "NOWHERE", "--out"), ("demo", "NOWHERE", "--out"), ("calibrate", "NOWHERE", "--out"),
    ("plan", "NOWHERE", "--out"), ("defragment", "NOWHERE", "--current", "NOWHERE", "--out"),
    ("report", "NOWHERE", "--out"),
    ("runs", "NOWHERE", "--out"), ("tune", "NOWHERE", "--out"), ("bench", "profile", "NOWHERE", "--out"),
    ("bench", "analyze", "NOWHERE", "--out"), ("synthesize", "pai2020", "--out"),
]  # fmt: skip


@pytest.mark.parametrize("words", FILES, ids=lambda words: " ".join(words[:-1]))
def test_an_output_in_a_file_is_refused_before_the_input_is_looked_at(command, tmp_path, words):
    (tmp_path / "file").write_text("kept")
    done = command(*words, tmp_path / "file" / "out.csv")
    assert done.returncode == 2
    assert f"{tmp_path / 'file'}" in done.stderr
    assert "NOWHERE" not in done.stderr
    assert "hint: " in done.stderr
    assert (tmp_path / "file").read_text() == "kept"


def test_folders_that_do_not_exist_yet_are_no_mistake(tmp_path):
    may_create(tmp_path / "new" / "folder" / "page.html")
    may_create(tmp_path / "new" / "folder", folder=True)
    may_create(tmp_path, folder=True)
    may_create(None)
    assert list(tmp_path.iterdir()) == []


def test_a_folder_is_no_file_and_a_file_no_folder(tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(FleetlabError, match="not a file"):
        may_create(tmp_path)
    with pytest.raises(FleetlabError, match="not a folder"):
        may_create(tmp_path / "file", folder=True)
