"""Folders that are there as long as somebody uses them."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from ssdkit import sweep_run
from ssdkit._folders import OWNER, Held, clear, remove, temporary
from ssdkit.sweep_run import KEPT, aged_folder, forget_aged


def names(folder: Path) -> list[str]:
    return sorted(each.name for each in folder.iterdir())


def test_what_somebody_has_stays_and_all_else_goes(tmp_path: Path) -> None:
    used, left, empty = (Held(tmp_path / name) for name in ("a-used", "a-left", "a-empty"))
    (left.folder / "rows" / "deep").mkdir(parents=True)
    (left.folder / "link").symlink_to(tmp_path)
    left.release()
    left.release()
    empty.release()
    (empty.folder / OWNER).unlink()
    # No folder of ours, or no name of ours: nobody's business.
    (tmp_path / "a-other").mkdir()
    (tmp_path / "a-other" / "file").touch()
    (tmp_path / "a-file").touch()
    Held(tmp_path / "b-left").release()
    clear(tmp_path, "a-*")
    assert names(tmp_path) == ["a-file", "a-other", "a-used", "b-left"]
    more = Held(used.folder)
    used.release()
    remove(more.folder)
    assert used.folder.exists(), "another share of it is held"
    more.release()
    remove(more.folder)
    assert not used.folder.exists()


def test_the_kernel_tells_who_was_killed(tmp_path: Path) -> None:
    program = """
import sys, pathlib
from ssdkit._folders import Held
held = Held(pathlib.Path(sys.argv[1]))
(held.folder / "data").touch()
print("there", flush=True)
sys.stdin.read()
"""
    folder = tmp_path / "theirs"
    with subprocess.Popen(
        [sys.executable, "-c", program, str(folder)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    ) as running:
        assert running.stdout is not None and running.stdout.readline() == "there\n"
        clear(tmp_path, "*")
        assert names(folder) == [OWNER, "data"]
        running.send_signal(signal.SIGKILL)
        running.wait()
        clear(tmp_path, "*")
        assert not folder.exists()


def test_one_that_is_taken_away_while_it_is_made_is_made_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Between its making and its lock it looks like nobody's."""
    opened = os.open
    taken: list[Path] = []

    def late(path: Path, *more: int) -> int:
        if not taken:
            taken.append(path)
            monkeypatch.setattr(os, "open", opened)
            clear(tmp_path, "*")
        return opened(path, *more)

    monkeypatch.setattr(os, "open", late)
    held = Held(tmp_path / "mine")
    assert taken and names(held.folder) == [OWNER]
    remove(held.folder)
    assert held.folder.exists()


def test_temporary_folders_go_and_take_those_along_that_were_left(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    Held(tmp_path / "ssdkit-sweep-left").release()
    with temporary("ssdkit-sweep-") as first, temporary("ssdkit-sweep-") as second:
        assert names(tmp_path) == sorted([first.name, second.name])
    assert not names(tmp_path)


def test_aged_drives_are_kept_for_the_last_sweeps(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SSDKIT_AGED", str(tmp_path))
    monkeypatch.setattr(sweep_run, "_kept", type(sweep_run._kept)())
    places = [f"{n:016x}" for n in range(KEPT + 1)]
    (tmp_path / "mine").mkdir()
    with aged_folder(places[0]) as first:
        for place in places[1:]:
            with aged_folder(place) as folder:
                assert folder == tmp_path / place
        # The oldest is still in use; then it is nobody's.
        assert names(tmp_path) == [*places, "mine"] and first.exists()
    with aged_folder("f" * 16):
        assert not first.exists()
    for place in [*places, "f" * 16]:
        forget_aged(place)
    assert names(tmp_path) == ["mine"], "no folder of others, and not the one that was named"
