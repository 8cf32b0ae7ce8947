"""Drives in processes that were forked: they are their parent's alone."""

from __future__ import annotations

import gc
import multiprocessing
import os
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import ssdkit
from ssdkit import Drive, KeyValue

BLOCK = 4096
BLOCKS = np.arange(300) * BLOCK
SMALL: dict[str, Any] = {"size": "16M", "groups": 2, "pus": 2, "pages": 16}

Ask = Callable[[Any], object]

#: All that can be asked of a drive, and of a store.
OF_DRIVES: dict[str, Ask] = {
    "write": lambda drive: drive.run("write", BLOCKS, data=b"c" * len(BLOCKS) * BLOCK),
    "flush": lambda drive: drive.flush(),
    "submit": lambda drive: drive.submit("read"),
    "advance": lambda drive: drive.advance(),
    "cut": lambda drive: drive.cut(),
    "counters": lambda drive: drive.counters(),
    "wear": lambda drive: drive.wear(),
    "hash": lambda drive: drive.state_hash(),
    "config": lambda drive: drive.config,
    "now": lambda drive: drive.now,
    "waiting": lambda drive: drive.waiting,
    "size": lambda drive: drive.size,
    "qd": lambda drive: setattr(drive, "qd", 2),
    "closed": lambda drive: drive.closed,
    "close": lambda drive: drive.close(),
}
OF_STORES: dict[str, Ask] = {
    "put": lambda store: store.put({b"%d" % n: b"c" * 3000 for n in range(500)}),
    "get": lambda store: store.get(b"1"),
    "delete": lambda store: store.delete(b"1"),
    "scan": lambda store: store.scan(),
    "flush": lambda store: store.flush(),
    "now": lambda store: store.now,
    "found": lambda store: store.found,
    "closed": lambda store: store.closed,
    "close": lambda store: store.close(),
}


def forked(act: Callable[[], object]) -> str:
    """What a forked process tells of what came of something."""
    reads, writes = os.pipe()
    child = os.fork()
    if child == 0:
        # One that never returns says nothing.
        signal.signal(signal.SIGALRM, signal.SIG_DFL)
        signal.alarm(60)
        try:
            told = str(act())
        except BaseException as e:  # noqa: BLE001  (nothing of it may get back into the test)
            told = f"{type(e).__name__}: {e}"
        os.write(writes, told.encode())
        os._exit(0)
    os.close(writes)
    with os.fdopen(reads) as pipe:
        told = pipe.read()
    os.waitpid(child, 0)
    return told


def refusals(of: Any, asks: dict[str, Ask]) -> list[str]:
    """What of this was done."""
    done = []
    for name, ask in asks.items():
        try:
            done.append(f"{name} gave {ask(of)!r}")
        except ssdkit.Error as e:
            if "which opened it, and this one was forked" not in str(e):
                done.append(f"{name} raised {e}")
    return done


@pytest.fixture
def path(tmp_path: Path) -> str:
    path = str(tmp_path / "a.ssd")
    ssdkit.create(path, "tlc", **SMALL)
    return path


def test_a_forked_process_uses_no_drive_of_its_parents(path: str) -> None:
    for name in (path, "mem:tlc,size=16M,groups=2,pus=2,pages=16"):
        drive = Drive(name)
        drive.run("write", BLOCKS, data=b"p" * len(BLOCKS) * BLOCK)
        drive.flush()
        assert forked(lambda d=drive: refusals(d, OF_DRIVES)) == "[]"  # type: ignore[misc]
        assert "process that opened it" in forked(lambda d=drive: repr(d))  # type: ignore[misc]
        # The parent goes on, and all is there.
        drive.run("write", BLOCKS[:50], data=b"q" * 50 * BLOCK)
        drive.flush()
        if name == path:
            drive.close()
            drive = Drive(name)
        expect = b"q" * 50 * BLOCK + b"p" * 250 * BLOCK
        drive.run("read", BLOCKS, expect=expect)
        drive.close()


@pytest.mark.parametrize("target", ["pblk", "batch", "kv"])
def test_a_forked_process_uses_no_store_of_its_parents(target: str, tmp_path: Path) -> None:
    path = tmp_path / "a.ssd"
    ssdkit.create(path, "tlc", size="64M", target=target)
    records = {b"%d" % n: b"p" * 100 for n in range(500)}
    store = KeyValue(path)
    store.put(records)
    store.flush()
    assert forked(lambda: refusals(store, OF_STORES)) == "[]"
    store[b"more"] = b"q"
    store.close()
    with KeyValue(path) as store:
        assert dict(store.scan()) == {**records, b"more": b"q"}


#: A process forks, and both come to their end as programs do.
ENDS = """
import gc, os, sys
import numpy as np
import ssdkit

path, how = sys.argv[1:]
drive, store = ssdkit.Drive(path), ssdkit.KeyValue("mem:tlc", size="64M")
drive.run("write", np.arange(300) * 4096, data=b"p" * 300 * 4096)
drive.flush()
if how == "with":
    with drive, store:
        child = os.fork()
        if child == 0:
            sys.exit(7)
        assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 7
        drive.run("write", 0, data=b"q" * 4096)
else:
    child = os.fork()
    if child == 0:
        if how == "dropped":
            del drive, store
            gc.collect()
        sys.exit(7)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 7
    drive.run("write", 0, data=b"q" * 4096)
    drive.close()
"""


@pytest.mark.parametrize("how", ["exit", "dropped", "with"])
def test_a_forked_process_ends_and_the_file_is_as_it_was(how: str, path: str) -> None:
    program = [sys.executable, "-c", ENDS, path, how]
    ran = subprocess.run(program, check=False, capture_output=True, text=True, timeout=300)
    assert (ran.returncode, ran.stderr) == (0, "")
    with Drive(path) as drive:
        drive.run("read", BLOCKS, expect=b"q" * BLOCK + b"p" * 299 * BLOCK)


INHERITED: list[Any] = []


def _task(n: int) -> str:
    try:
        INHERITED[0].run("write", n * BLOCK, data=b"c" * BLOCK)
    except ssdkit.Error as e:
        return str(e)
    return "written"


def test_workers_of_multiprocessing_are_refused(path: str) -> None:
    with Drive(path) as drive:
        drive.run("write", BLOCKS, data=b"p" * len(BLOCKS) * BLOCK)
        drive.flush()
        INHERITED[:] = [drive]
        with multiprocessing.get_context("fork").Pool(2) as pool:
            told = pool.map(_task, range(8), chunksize=1)
        assert all('multiprocessing\'s "spawn"' in text for text in told), told
        drive.run("write", BLOCKS[:8], data=b"q" * 8 * BLOCK)
    INHERITED.clear()
    with Drive(path) as drive:
        drive.run("read", BLOCKS, expect=b"q" * 8 * BLOCK + b"p" * 292 * BLOCK)


def test_a_child_that_lives_on_keeps_no_file_locked(path: str) -> None:
    drive = Drive(path)
    drive.run("write", 0, data=b"p" * BLOCK, fua=True)
    reads, writes = os.pipe()
    child = os.fork()
    if child == 0:
        os.close(writes)
        os.read(reads, 1)
        os._exit(0)
    try:
        drive.cut()
        drive.run("read", 0, expect=b"p" * BLOCK)
        drive.close()
        with Drive(path) as drive:
            drive.run("read", 0, expect=b"p" * BLOCK)
        # The child took nothing away from who has it now.
        drive = Drive(path)
    finally:
        os.close(writes)
        os.close(reads)
        os.waitpid(child, 0)
    with pytest.raises(ssdkit.Error, match="in use"):
        Drive(path)
    drive.close()


@pytest.mark.parametrize("ends", ["returns", "raises"])
def test_a_policy_that_forks_leaves_the_drive_to_the_parent(ends: str, path: str) -> None:
    reads, writes = os.pipe()
    parent, children = os.getpid(), list[int]()

    def policy(unit: int, chunk: Any, valid: Any, age: Any, wear: Any) -> Any:
        if not children:
            children.append(os.fork())
            if children == [0] and ends == "raises":
                raise ZeroDivisionError("of the child")
        return chunk[valid.argmin()]

    drive = Drive(path, victim=policy)
    offsets = np.random.default_rng(1).integers(0, drive.size // BLOCK, 12_000) * BLOCK
    try:
        drive.run("write", offsets, data=b"p" * len(offsets) * BLOCK)
    except BaseException as e:
        if os.getpid() == parent:
            raise
        told = f"{type(e).__name__}: {e}; then {refusals(drive, OF_DRIVES)}"
        os.write(writes, told.encode())
    if os.getpid() != parent:
        os._exit(0)
    os.close(writes)
    with os.fdopen(reads) as pipe:
        told = pipe.read()
    assert children, "it was never asked"
    os.waitpid(children[0], 0)
    assert told.startswith("Error: the drive is used by" if ends == "returns" else "ZeroDivision")
    assert told.endswith("; then []")
    drive.close()
    gc.collect()
    with Drive(path) as drive:
        assert drive.run("read", np.unique(offsets), keep=True).ok.all()
