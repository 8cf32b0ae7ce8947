"""One run of a sweep: what it is, which row it gives, and how a worker does it.

A row follows from the run's configuration, the files that it names and the build of
ssdkit, and from nothing else; so its *key*, a hash of these, says whether it was run
before.
"""

from __future__ import annotations

import fcntl
import getpass
import hashlib
import json
import os
import re
import tempfile
import time
from collections import OrderedDict
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from functools import lru_cache
from pathlib import Path
from threading import Lock
from typing import Any

import ssdkit
from ssdkit import _core
from ssdkit._core import Error, UsageError
from ssdkit._folders import Held, clear, remove
from ssdkit.sweep_extra import build
from ssdkit.sweep_grid import Point, key_of, plain

#: Options that say where a report goes, or who may stop a run: no part of a row.
REFUSED = {
    "json": "rows are what a sweep gives",
    "report": "plot the rows, or run bench for one of them",
    "snapshot": "aged drives are shared by themselves",
    "trace_file": "trace one of the runs by bench",
    "max_time": "rows would depend on the machine: bound a run by ios or time",
}


#: Larger files are told by size and time of change: nobody waits for them to be read.
LARGE = 1 << 30


@dataclass(frozen=True)
class Run:
    """A configuration, and its key."""

    drive: str
    options: dict[str, Any]
    trace: str | None = None
    share: bool = True
    key: str = field(default="", compare=False)

    def aged(self) -> dict[str, Any] | None:
        """What makes the aged drive that this run begins with; none where it begins with a
        new one, or with what the name says."""
        options = self.options
        rw = str(options.get("rw", ""))
        how = options.get("precondition")
        if how is None:
            reads = rw in ("read", "randread") or (
                rw in ("rw", "randrw") and str(options.get("read_percent", 50)) != "0"
            )
            how = "seq" if reads else "none"
        plain_ = self.trace is None and self.drive.startswith("mem:")
        told = options.get("clock", "virtual") != "virtual" or options.get("verify")
        faults = any(key in options for key in ("fault", "faults"))
        if not self.share or not plain_ or told or faults or how == "none":
            return None
        seed = options.get("seed", 1)
        if how == "whole" or (how == "seq" and "range" not in options):
            # It is the same whatever is measured then.
            return {"rw": "read", "bs": "128k", "ios": 1, "precondition": how, "seed": seed}
        if "job" in options:
            # What several loads use is filled for them.
            return None
        kept = {key: value for key, value in options.items() if key not in ("ios", "time", "ramp")}
        return {**kept, "ios": 1}


def drive_with(name: str, keys: Mapping[str, Any]) -> str:
    """A drive's name with keys set that it has not.

    >>> drive_with("mem:tlc,size=1G", {"spare": 0.1, "suspend": True})
    'mem:tlc,spare=0.1,suspend=true,size=1G'
    """
    head, _, rest = name.partition(",")
    if head.startswith("null:"):
        head, rest = "null:", name.removeprefix("null:")
    elif head.startswith("mem:") and "profile" in keys:
        head = f"mem:{keys['profile']}"
    set_ = [f"{key}={_text(value)}" for key, value in keys.items() if key != "profile"]
    parts = [part for part in [*set_, rest] if part]
    if head == "null:":
        return head + ",".join(parts)
    return ",".join([head, *parts])


def _text(value: object) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)


def keys_in(drive: str) -> set[str]:
    """The keys that a drive's name sets."""
    _, _, rest = drive.partition(":")
    return {part.split("=")[0] for part in rest.split(",") if "=" in part}


def without(drive: str, keys: tuple[str, ...]) -> str:
    """A drive's name without these keys.

    >>> without("mem:tlc,size=1G,errors=true", ("errors",))
    'mem:tlc,size=1G'
    """
    return ",".join(part for part in drive.split(",") if part.split("=")[0] not in keys)


def base_of(base: str | Mapping[str, Any], grid: list[str]) -> dict[str, Any]:
    """The base as a dict by the one name of each key. Raises where it and the grid
    contradict each other, or something is missing."""
    if isinstance(base, str):
        base = {"drive": base}
    if not isinstance(base, Mapping):
        raise TypeError(f"a {type(base).__name__} is no base: give a dict of options, or a drive")
    all_: dict[str, Any] = {}
    for name, value in base.items():
        key = key_of(name)
        if key in all_:
            raise UsageError(f"{key} is in the base twice, also as {name}: leave one out")
        all_[key] = plain(key, value)
    for key in grid:
        if key in all_:
            raise UsageError(f"{key} is in the base and in the grid: leave it out of one")
        named = str(all_.get("drive", ""))
        if key.startswith("drive.") and key != "drive.profile" and key[6:] in keys_in(named):
            raise UsageError(
                f"{key[6:]} is in the base's drive, {named}, and in the grid: leave it out of one"
            )
        if key == "drive" and any(each.startswith("drive.") for each in all_):
            raise UsageError(
                "the grid has whole drives, and the base keys of one: leave out either"
            )
    for key in [*all_, *grid]:
        if key in REFUSED:
            raise UsageError(f"{key} is no key of a sweep: {REFUSED[key]}")
        if key == "drive.":
            raise UsageError("drive. names no key: write drive.spare, for example")
    if "drive" not in all_ and "drive" not in grid:
        raise UsageError("no drive: give one in the base, for example drive='mem:tlc,size=64M'")
    return all_


def run_of(base: Mapping[str, Any], point: Point, share: bool) -> Run:
    """The run of a point, checked as far as it can be without running it. Raises what
    ``bench`` would."""
    all_ = {**base, **point}
    keys = {key[6:]: all_.pop(key) for key in list(all_) if key.startswith("drive.")}
    drive, trace = str(all_.pop("drive")), all_.pop("trace", None)
    twice = sorted(keys.keys() & keys_in(drive))
    if twice:
        raise UsageError(f"{twice[0]} is in {drive} already: leave it out of one")
    # 0 is a value, and no option left out.
    left = [key for key, value in all_.items() if value is None or value is False]
    options = {key: all_[key] for key in sorted(all_.keys() - left)}
    drive = drive_with(drive, keys)
    name = _core.check(drive, None if trace is None else str(trace), **options)
    run = Run(name, options, None if trace is None else str(trace), share)
    object.__setattr__(run, "key", key(run))
    return run


def key(run: Run) -> str:
    """The hash of all that a row follows from."""
    files = files_of(run.drive, run.trace, run.options.get("faults"))
    # A number and its text are the same option.
    options = {key: _plain_text(value) for key, value in run.options.items()}
    all_ = [run.drive, options, run.trace, run.aged() is not None, files, build()]
    return hashlib.sha256(json.dumps(all_, sort_keys=True).encode()).hexdigest()[:32]


def _plain_text(value: object) -> object:
    return [_text(each) for each in value] if isinstance(value, list) else _text(value)


def files_of(drive: str, *more: object) -> dict[str, str]:
    """The files that a drive's name leads to, and others, with a hash of what is in each."""
    given = [path for each in more for path in (each if isinstance(each, list) else [each])]
    named = [str(path) for path in (*given, *_paths(drive)) if path]
    return {path: _hash(path) for path in named if Path(path).is_file()}


def _paths(drive: str) -> list[str]:
    """What of a drive's name may be files: of a profile, of rules, also several of them, and
    those of a remote drive's name, which is within."""
    scheme, _, rest = drive.partition(":")
    parts = (drive if "/" in scheme else rest).split(",")
    whole = [part.partition("=")[2] if "=" in part else part for part in parts]
    within = [piece for part in whole for piece in re.split("[+:=]", part) if piece != part]
    return [piece.strip() for piece in (*whole, *within)]


def _hash(path: object) -> str:
    about = os.stat(str(path))
    if about.st_size > LARGE:
        return f"{about.st_size} {about.st_mtime_ns}"
    return _hash_of(str(path), about.st_mtime_ns, about.st_size)


@lru_cache(maxsize=1024)
def _hash_of(path: str, _changed: int, _size: int) -> str:
    with open(path, "rb") as file:
        digest = hashlib.blake2b(digest_size=16)
        while data := file.read(1 << 20):
            digest.update(data)
    return digest.hexdigest()


def as_dict(report: Any) -> dict[str, Any]:
    """A report as a dict, whichever it is."""
    told = report if isinstance(report, dict) else report.to_dict()
    return dict(told)


LATENCIES = ("mean", "min", "p50", "p90", "p99", "p999", "p9999", "p99999", "max")

#: The figures of a row, by column: where each is in the report, and whether it is whole.
FIGURES: dict[str, tuple[tuple[str, ...], type]] = {
    "ios": (("ios",), int),
    "bytes": (("bytes",), int),
    "seconds": (("seconds",), float),
    "iops": (("iops",), float),
    "bytes_per_second": (("bytes_per_second",), float),
    "failed_requests": (("failed_requests",), int),
    **{
        f"{of}latency_{name}_ns": ((*way, "latency_ns", name), float if name == "mean" else int)
        for of, way in (("", ()), ("read_", ("read",)), ("write_", ("write",)))
        for name in LATENCIES
    },
    "read_iops": (("read", "iops"), float),
    "write_iops": (("write", "iops"), float),
    **{
        f"write_amplification{'' if name == 'total' else '_' + name}": (
            ("write_amplification", name),
            float,
        )
        for name in ("total", "user", "gc", "padding", "metadata")
    },
    "collections": (("gc", "collections"), int),
    "moved": (("gc", "moved"), int),
    "erases": (("erases",), int),
    "steady": (("steady", "reached"), bool),
    "steady_rounds": (("steady", "rounds"), int),
    **{
        f"flash_{name}": (("flash_errors", name), int)
        for name in ("corrected_reads", "retried_reads", "retries", "failed_reads", "failed_blocks")
    },
    "void": (("void",), str),
    "state_hash": (("state_hash",), str),
}


def figures(report: Mapping[str, Any]) -> dict[str, Any]:
    """The figures of a report by column; none where it has not the figure."""
    row: dict[str, Any] = {}
    for column, (way, kind) in FIGURES.items():
        value: Any = report
        for name in way:
            value = value.get(name) if isinstance(value, Mapping) else None
        row[column] = None if value is None else kind(value)
    return row


@dataclass
class Outcome:
    """What became of a run: a row, or its error, and what is the machine's own."""

    key: str
    row: dict[str, Any]
    error: str | None
    #: Whether it would fail again: an error of the run and not of the machine.
    lasting: bool
    seconds: float
    worker: str


def perform(run: Run, expected: str, keep: bool, place: str) -> Outcome:
    """Runs on this machine. ``keep``: the whole report as JSON, too. ``place``: the name of
    the sweep, whose aged drives are kept apart from those of others."""
    if (mine := build()) != expected:
        raise WorkerVersionError(myself(), mine, expected)
    began = time.perf_counter()
    row: dict[str, Any] = {}
    error, lasting = None, True
    try:
        row = _row(as_dict(_measured(run, place)), keep)
    except _NoAgedDriveError as e:
        error, lasting = str(e), False
    except Error as e:
        error = str(e)
        # Of a run whose requests failed there is a report all the same.
        report = getattr(e, "report", None)
        row = {} if report is None else _row(as_dict(report), keep)
    except (MemoryError, OSError) as e:
        error, lasting = f"{type(e).__name__}: {e}", False
    return Outcome(run.key, row, error, lasting, time.perf_counter() - began, myself())


def _row(report: dict[str, Any], keep: bool) -> dict[str, Any]:
    """The figures of a report, and where it is kept, all that is not the machine's own."""
    row = figures(report)
    if keep:
        own = ("cpu", "wall_seconds", "self_check_ns", "drive", "recovery")
        left = {name: value for name, value in report.items() if name not in own}
        row["report"] = json.dumps(left, sort_keys=True)
    return row


def myself() -> str:
    """This machine and process."""
    return f"{os.uname().nodename}:{os.getpid()}"


def _measured(run: Run, place: str) -> Any:
    if run.trace is not None:
        # It comes with the package's results.
        replay: Callable[..., Any] | None = getattr(ssdkit, "replay", None)
        if replay is None:
            raise UsageError("this build has no replay: leave the trace out")
        return replay(run.trace, run.drive, **run.options)
    aging = run.aged()
    if aging is None:
        return ssdkit.bench(run.drive, **run.options)
    done = ("precondition", "steady_rounds", "steady_round")
    options = {key: value for key, value in run.options.items() if key not in done}
    with aged_folder(place) as folder:
        path, steady = aged_drive(run.drive, aging, folder)
        report = as_dict(ssdkit.bench(f"ssd:{path},copy=yes", **options))
    return {**report, "steady": steady}


#: Sweeps whose aged drives a worker keeps until it is told that they have ended: of one that
#: was killed nobody tells it.
KEPT = 4
_kept: OrderedDict[str, Held] = OrderedDict()
_keeping = Lock()


def _aged_root() -> Path:
    """Where this machine keeps aged drives: in ``SSDKIT_AGED``, or a folder of this user's
    for temporary files."""
    named = os.environ.get("SSDKIT_AGED")
    name = getpass.getuser().replace("/", "_")
    return Path(named) if named else Path(tempfile.gettempdir()) / f"ssdkit-aged-{name}"


@contextmanager
def aged_folder(place: str) -> Iterator[Path]:
    """The folder of this machine for the aged drives of a sweep. Nobody removes it meanwhile,
    nor while this process may need it again; those that are nobody's any more go."""
    root = _aged_root()
    held = Held(root / place)
    try:
        if root.stat().st_uid != os.getuid():
            raise Error(f"{root} is somebody else's: set SSDKIT_AGED to a folder of your own")
        with _keeping:
            if place not in _kept:
                clear(root, "[0-9a-f]" * len(place))
                _kept[place] = Held(root / place)
            _kept.move_to_end(place)
            while len(_kept) > KEPT:
                _kept.popitem(last=False)[1].release()
        yield held.folder
    finally:
        held.release()


def aged_drive(drive: str, aging: Mapping[str, Any], folder: Path) -> tuple[Path, Any]:
    """The file of an aged drive, made by whichever process of this machine comes first,
    and what is told of its steady state."""
    text = json.dumps([drive, aging, files_of(drive), build()], sort_keys=True, default=str)
    name = hashlib.sha256(text.encode()).hexdigest()[:32]
    path, about = folder / f"{name}.ssd", folder / f"{name}.json"
    with open(folder / f"{name}.lock", "w", encoding="ascii") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not path.exists():
            made = folder / f"{name}.making"
            made.unlink(missing_ok=True)
            try:
                report = as_dict(ssdkit.bench(drive, snapshot=str(made), **aging))
            except UsageError:
                raise
            except Error as e:
                raise _NoAgedDriveError(str(e)) from e
            about.write_text(json.dumps(report.get("steady")), encoding="ascii")
            made.rename(path)
        return path, json.loads(about.read_text(encoding="ascii"))


def forget_aged(place: str) -> None:
    """This process needs the aged drives of a sweep no more: who is the last on this machine
    removes them."""
    with _keeping:
        kept = _kept.pop(place, None)
        if kept is not None:
            kept.release()
    root = _aged_root()
    remove(root / place)
    # Another sweep may have its own there; and a folder that was named stays.
    if "SSDKIT_AGED" not in os.environ:
        with suppress(OSError):
            root.rmdir()


class _NoAgedDriveError(Error):
    """An aged drive could not be made. The disk may be full: it is no part of a row."""


class WorkerVersionError(Error):
    """A worker has another build of ssdkit, so that its rows would not be this sweep's."""

    def __init__(self, worker: str, has: str, wanted: str) -> None:
        super().__init__(worker, has, wanted)
        self.worker, self.has, self.wanted = worker, has, wanted

    def __str__(self) -> str:
        return (
            f"worker {self.worker} has ssdkit {self.has}, and this sweep {self.wanted}: install "
            "the same there, or take another scheduler"
        )
