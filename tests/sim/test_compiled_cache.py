"""Compiled code is kept as pickles, which run what they hold: it is never loaded from where others may have put it."""

import os
import stat
import tempfile

import pytest

from fleetlab.core.private_folder import distrust, make_private
from fleetlab.sim import jit

OTHER = 54321  # a user that is not this one


@pytest.fixture
def shared(tmp_path, monkeypatch):
    """A temporary folder of all users, where neither the sources nor the home can hold the cache."""
    nowhere = tmp_path / "file"
    nowhere.touch()
    folder = tmp_path / "shared"
    folder.mkdir()
    folder.chmod(0o1777)
    monkeypatch.setattr(jit, "BESIDE", nowhere / "__pycache__")
    monkeypatch.setattr(jit, "_refusals", [])
    monkeypatch.setenv("XDG_CACHE_HOME", str(nowhere / "home"))
    monkeypatch.setattr(tempfile, "tempdir", str(folder))
    return folder


def cache_folder():
    """Where the code of one module is cached, without what was decided before."""
    return jit.cache_folder.__wrapped__("heap")


def names(shared):
    """The names that others can guess, now and before."""
    return [shared / "fleetlab", shared / f"fleetlab-compiled-{os.geteuid()}"]


def hand_over(path):
    try:
        os.chown(path, OTHER, OTHER, follow_symlinks=False)
    except PermissionError:
        pytest.skip("only root can give a folder away")


def test_a_folder_in_the_temporary_one_is_this_users_and_private(shared, capfd):
    folder = cache_folder()
    assert folder.parent == names(shared)[1]
    assert [stat.S_IMODE(p.stat().st_mode) for p in (folder, folder.parent)] == [0o700, 0o700]
    assert cache_folder() == folder
    assert capfd.readouterr().err == ""


def planted_by_another(path):
    path.mkdir()
    path.chmod(0o777)
    hand_over(path)


def planted_open_to_all(path):
    path.mkdir()
    path.chmod(0o777)


def planted_link(path):
    target = path.parent.parent / f"target of {path.name}"
    target.mkdir(mode=0o700)
    path.symlink_to(target)


def planted_file(path):
    path.touch()


@pytest.mark.parametrize("plant", [planted_by_another, planted_open_to_all, planted_link, planted_file])
def test_a_folder_that_others_have_made_is_not_used_and_that_is_said_once(shared, plant, capfd):
    for path in names(shared):
        plant(path)
    folder = cache_folder()
    assert folder.is_dir()
    assert stat.S_IMODE(folder.stat().st_mode) == 0o700
    assert not any(folder.is_relative_to(path.resolve()) for path in names(shared))
    cache_folder()
    told = capfd.readouterr().err
    assert told.count("compiled code is not kept") == 1
    assert str(names(shared)[1]) in told


def test_one_module_in_a_sound_folder_may_have_been_put_there_while_it_was_open(shared, capfd):
    sound = cache_folder()
    sound.chmod(0o777)
    assert cache_folder() != sound
    assert "others can write into it" in capfd.readouterr().err


def test_a_folder_under_one_that_others_own_or_share_can_be_replaced_by_them(tmp_path):
    (tmp_path / "open").mkdir()
    (tmp_path / "open").chmod(0o777)
    with pytest.raises(PermissionError, match="others can replace it"):
        make_private(tmp_path / "open" / "mine")
    (tmp_path / "open").chmod(0o1777)
    assert distrust(make_private(tmp_path / "open" / "mine")) == ""
    (tmp_path / "theirs").mkdir()
    hand_over(tmp_path / "theirs")
    with pytest.raises(PermissionError, match="others can replace it"):
        make_private(tmp_path / "theirs" / "mine")


def test_beside_the_sources_their_owner_is_trusted_and_nobody_else(tmp_path, monkeypatch):
    beside = tmp_path / "__pycache__"
    monkeypatch.setattr(jit, "BESIDE", beside)
    folder = jit._named_folder(beside, "heap", "heap-1")
    assert folder == beside / "heap-1"
    hand_over(folder)
    with pytest.raises(PermissionError, match="belongs to another user"):
        jit._named_folder(beside, "heap", "heap-1")
    monkeypatch.setattr(jit, "ROOT", tmp_path)
    hand_over(tmp_path)
    assert jit._named_folder(beside, "heap", "heap-1") == folder
