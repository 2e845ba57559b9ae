"""Temporary folders: who else can read them, and which of them the next run removes."""

import os
import stat

import pytest

from glasshouse.errors import Fault
from glasshouse.learning.engine import Engine
from glasshouse.learning.scratch import LOCK, PREFIX, remove_dead, scratch_folder


@pytest.fixture(autouse=True)
def temporary(tmp_path, monkeypatch):
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    return tmp_path


def dead(folder):
    """What a run that was killed leaves."""
    folder.mkdir()
    (folder / LOCK).touch()
    (folder / "0").write_bytes(b"images")
    return folder


def test_only_its_user_reads_a_folder_and_it_goes_with_its_run(temporary):
    with scratch_folder() as folder:
        assert stat.S_IMODE(folder.stat().st_mode) == 0o700
        (folder / "0").write_bytes(b"images")
    assert list(temporary.iterdir()) == []


def test_the_folders_of_dead_runs_are_removed_and_those_of_living_ones_are_not(temporary):
    dead(temporary / f"{PREFIX}a")
    dead(temporary / f"{PREFIX}b.doomed")
    with scratch_folder() as living:
        remove_dead()
        assert list(temporary.iterdir()) == [living]
        assert (living / LOCK).exists()


def test_an_engine_starts_by_removing_the_folders_of_dead_runs(temporary):
    dead(temporary / f"{PREFIX}a")
    with Engine(1):
        assert list(temporary.iterdir()) == []


def test_what_no_run_left_is_not_removed(temporary, tmp_path_factory, monkeypatch):
    elsewhere = dead(tmp_path_factory.mktemp("elsewhere") / "folder")
    kept = {
        dead(temporary / "glasshouse-data"),
        temporary / f"{PREFIX}link",
        temporary / f"{PREFIX}without-lock",
        temporary / f"{PREFIX}with-linked-lock",
        temporary / f"{PREFIX}file",
    }
    (temporary / f"{PREFIX}link").symlink_to(elsewhere)
    (temporary / f"{PREFIX}without-lock").mkdir()
    (temporary / f"{PREFIX}with-linked-lock").mkdir()
    (temporary / f"{PREFIX}with-linked-lock" / LOCK).symlink_to(elsewhere / LOCK)
    (temporary / f"{PREFIX}file").touch()
    remove_dead()
    assert set(temporary.iterdir()) == kept
    assert (elsewhere / "0").exists()


def test_a_link_in_a_dead_folder_is_removed_and_what_it_names_is_not(temporary, tmp_path_factory):
    elsewhere = tmp_path_factory.mktemp("elsewhere")
    (elsewhere / "precious").touch()
    folder = dead(temporary / f"{PREFIX}a")
    (folder / "link").symlink_to(elsewhere / "precious")
    remove_dead()
    assert not folder.exists()
    assert (elsewhere / "precious").exists()


def test_the_folders_of_other_users_are_left_alone(temporary, monkeypatch):
    folder = dead(temporary / f"{PREFIX}a")
    monkeypatch.setattr(os, "getuid", lambda: folder.stat().st_uid + 1)
    remove_dead()
    assert folder.exists()


def test_no_place_for_a_folder_is_a_fault(temporary, monkeypatch):
    monkeypatch.setattr("tempfile.tempdir", str(temporary / "nowhere"))
    with pytest.raises(Fault, match="TMPDIR"), Engine(2):
        pass
