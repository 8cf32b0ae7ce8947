"""Fleets: thousands of drives over years, each of them a simulated drive of its own.

A fleet is a distribution: how much drives are written, how good their flash is, how warm they
are, what they are asked. Each drive lives its life in short windows that are measured; see
:mod:`ssdkit.fleet_run` for what is made faster and what is not. Lives are tasks of Dask, and
kept as those of a sweep are.
"""

from __future__ import annotations

import os
import warnings
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from ssdkit import _core
from ssdkit._core import UsageError
from ssdkit._crew import CONNECT, TEMPORARY, Crew
from ssdkit._folders import temporary
from ssdkit._numbers import U32, U64, real, said, whole
from ssdkit.fleet_run import (
    Drawn,
    Kind,
    Life,
    LogNormal,
    Normal,
    block_bytes,
    life_of,
    live,
    profile_of,
    windows_schema,
    write_share,
)
from ssdkit.fleet_statistics import (
    MOST,
    failures_with_replacements,
    kaplan_meier,
    rebuild_load,
    striped_reads,
)
from ssdkit.sweep_extra import build, optional
from ssdkit.sweep_run import without
from ssdkit.sweep_store import Store
from ssdkit.sweeps import bar_of

__all__ = ["Fleet", "LogNormal", "Normal", "fleet"]

#: A small drive of two units: its life takes some tenths of a second of a processor.
DRIVE = "mem:tlc,groups=1,pus=2,pages=48,size=32M,spare=0.2,store=none,endurance_cliff=false"
MIXED: dict[str, Any] = {"rw": "randrw", "read_percent": 50, "qd": 4}
#: What is drawn where nobody says otherwise: assumed, not measured.
WRITES, ERRORS, TEMPERATURE = LogNormal(0.5, 0.7), LogNormal(1.0, 0.2), Normal(40.0, 5.0)
#: Options of bench that a workload may have: it ends, and pauses, as its life says.
WORKLOAD = (
    *("rw", "read_percent", "bs", "qd", "threads", "range", "zipf", "hot", "placement"),
    *("fua_every", "flush_every"),
)
#: Columns of drives that were drawn.
DRAWN = ("writes", "errors", "temperature", "workload")
#: Degrees Celsius in which flash is used.
COLDEST, HOTTEST = -55.0, 150.0
#: Writes of a whole drive a day, and factors on bit error rates, at most.
HIGHEST = {"writes": 10_000.0, "errors": 1e6}
#: Drives of a fleet, at most.
MOST_DRIVES = 10_000_000
#: Keys that are drawn, or follow from the acceleration.
OURS = ("errors", "rber_base", "rber_wear", "retention_time")


@dataclass
class Fleet:
    """The lives of a fleet's drives."""

    #: Arrow: a row a drive: number, key, what was drawn, how it ended: ``years`` it was seen,
    #: ``failed``, ``cause`` (``worn``: it takes no more writes; ``lost``: data could not be
    #: read), ``error`` where there is no life.
    drives: Any
    #: Arrow: a row a drive and window, in order.
    windows: Any
    #: Years that it was looked at.
    years: float
    #: Windows of a whole life.
    life_windows: int
    #: Seed of what is drawn afterwards.
    seed: int
    folder: Path | None
    #: Drives that lived now, and that were known.
    ran: int
    known: int

    def __len__(self) -> int:
        return int(self.drives.num_rows)

    def __repr__(self) -> str:
        failed, none = int(self._column("failed").sum()), len(self) - self._lived().num_rows
        without = f" of {len(self) - none}, {none} without a life" if none else ""
        return (
            f"<Fleet of {len(self)} drives over {self.years:g} years: {failed} failed{without}; "
            f"{self.ran} lived now, {self.known} known>"
        )

    def _column(self, name: str) -> Any:
        return self.drives[name].to_numpy()

    def _lived(self, where: Any = None) -> Any:
        """The drives that have a life, of all or of some."""
        good = np.array([error is None for error in self.drives["error"].to_pylist()], bool)
        if where is not None:
            good &= np.asarray(where, bool)
        return self.drives.filter(good)

    def _lives(self, where: Any = None) -> tuple[Any, Any]:
        """How long drives lived, and which failed; those without a life are left out."""
        lived = self._lived(where)
        return lived["years"].to_numpy(), lived["failed"].to_numpy()

    def survival(self, by: str | None = None, confidence: float = 0.95) -> Any:
        """Survival curves by Kaplan and Meier as an Arrow table: ``years``, ``at_risk``,
        ``failures``, ``survival``, ``lower``, ``upper``, as :func:`kaplan_meier` of
        :mod:`ssdkit.fleet_statistics` gives them. Drives without a life are in none; where that
        leaves none, all is NaN. ``by`` is a column of ``drives`` that was drawn, as ``workload``,
        of which each value has a curve."""
        pa = optional("pyarrow", "sweep")
        if by is None:
            return pa.table(kaplan_meier(*self._lives(), confidence))
        if by not in self.drives.column_names:
            raise UsageError(f"{by}: drives have no such column: take workload, for example")
        if by not in DRAWN:
            raise UsageError(
                f"{by}: how a drive ended chooses it by its end, so that a curve says nothing: "
                f"take one of {', '.join(DRAWN)}"
            )
        values = self.drives[by].to_pylist()
        tables = []
        for value in sorted({value for value in values if value is not None}):
            chosen = self._lives([each == value for each in values])
            curve = kaplan_meier(*chosen, confidence)
            tables.append(pa.table({by: [value] * len(curve["years"]), **curve}))
        return pa.concat_tables(tables)

    def rebuild(
        self,
        *,
        capacity: float,
        data: int = 8,
        parity: int = 2,
        rate: float = 100e6,
        replace: bool = True,
    ) -> Any:
        """What is to be rebuilt in each month, as an Arrow table: ``month``, ``failures``,
        ``written_bytes``, ``read_bytes``, ``degraded``, ``most_at_once``. Drives of
        ``capacity`` bytes are in groups of ``data`` and ``parity``; a rebuild goes at ``rate``
        bytes a second. ``replace``: a drive that fails is replaced by one that lives under its
        place's load, and may fail, too: as one of those of the fleet with the same workload and
        the nearest ``writes``, drawn."""
        pa = optional("pyarrow", "sweep")
        lives, failed = self._lives()
        failures = np.sort(lives[failed])
        if replace:
            lived = self._lived()
            failures = failures_with_replacements(
                lives,
                failed,
                self.years,
                self.seed,
                writes=lived["writes"].to_numpy(),
                workloads=lived["workload"].to_pylist(),
            )
        load = rebuild_load(
            failures,
            self.years,
            capacity=capacity,
            data=data,
            parity=parity,
            rate=rate,
            drives=len(lives),
        )
        return pa.table(load)

    def striped(
        self,
        k: int,
        n: int | None = None,
        *,
        percentiles: Sequence[float] = (50.0, 99.0, 99.9, 99.99),
        groups: int = 200,
    ) -> Any:
        """The latency of reads that are striped over drives, as an Arrow table: ``years``,
        ``alive``, ``percentile``, ``one_ns`` (of one drive), ``striped_ns``. A read asks ``n``
        drives, by default ``k``, and has what it needs when ``k`` have answered. Of each
        window the drives that are alive at its end, in groups that are drawn; distributions
        are those that the drives measured. A percentile of too few reads is NaN."""
        pa = optional("pyarrow", "sweep")
        pc = optional("pyarrow.compute", "sweep")
        k = whole("k", k, 1, MOST)
        n = k if n is None else whole("n", n, 1, MOST)
        rows = []
        for window in range(self.life_windows):
            of = self.windows.filter(
                pc.and_(pc.equal(self.windows["window"], window), pc.is_null(self.windows["error"]))
            )
            # Those that failed in it, or had before, are not alive at its end.
            lives_on = pc.and_(pc.invert(of["worn"]), pc.is_null(of["lost_years"]))
            of = of.filter(pc.and_(lives_on, pc.greater(of["reads"], 0)))
            if of.num_rows < n:
                continue
            end = (window + 1) * self.years / self.life_windows
            below, counts = (of[name].to_numpy() for name in ("read_below_ns", "read_count"))
            for told in striped_reads(
                below, counts, k=k, n=n, at=percentiles, groups=groups, seed=self.seed
            ):
                rows.append({"years": end, "alive": of.num_rows, **told})
        if not rows:
            raise UsageError(f"k={k}: no {n} drives that read are alive: take fewer")
        return pa.Table.from_pylist(rows)


def fleet(
    drives: int,
    *,
    drive: str = DRIVE,
    years: float = 5.0,
    writes: Drawn = WRITES,
    errors: Drawn = ERRORS,
    temperature: Drawn = TEMPERATURE,
    workloads: Mapping[str, Any] | None = None,
    seed: int = 1,
    acceleration: float = 100.0,
    windows: int = 20,
    bursts: int = 8,
    out: str | os.PathLike[str] | None = None,
    scheduler: Any = None,
    workers: int | None = None,
    connect_timeout: float = CONNECT,
    progress: bool | None = None,
) -> Fleet:
    """Lives the lives of so many drives, and gives them as a :class:`Fleet`.

    ``drive`` is the name of a ``mem:`` drive that all have in common, small as the default is;
    ``years`` how long the fleet is looked at. Drawn for each drive, from a number,
    :class:`Normal` or :class:`LogNormal`: ``writes``, whole drive writes a day; ``errors``, a
    factor on the raw bit error rate of its flash; ``temperature`` in degrees Celsius, by which
    charge is lost faster (1.1 eV, from 40 degrees). ``workloads`` are options of ``bench``, or
    several by name: ``{"name": (weight, options)}``. ``seed`` is what all is drawn from.

    ``acceleration``: each erase stands for so many. ``windows`` are told of, each of
    ``bursts`` bursts of requests with rest between. ``out``, ``scheduler``, ``workers``,
    ``connect_timeout`` and ``progress`` are as of :func:`ssdkit.sweep`.

    Raises :class:`ssdkit.UsageError` for what cannot be, before anything lives. Warns of drives
    that have no life, as one that cannot be made.

    >>> lives = fleet(2, writes=0.2, windows=2, bursts=2, workers=1)
    >>> len(lives), lives.windows.num_rows
    (2, 4)
    """
    crew = Crew(scheduler, workers, connect_timeout)
    kind = _kind(
        drive,
        years,
        seed,
        (writes, errors, temperature),
        workloads,
        (acceleration, windows, bursts),
    )
    drives = whole("drives", drives, 1, MOST_DRIVES)
    lives = [life_of(kind, number) for number in range(drives)]
    for module in ("pyarrow", "distributed"):
        optional(module, "sweep")
    with ExitStack() as stack:
        folder = Path(out) if out is not None else stack.enter_context(temporary(TEMPORARY))
        store = stack.enter_context(Store(folder, windows_schema()))
        stack.enter_context(crew)
        bar = stack.enter_context(bar_of(progress, drives))
        known, passing = _lived(lives, kind, store, crew, bar)
        table = _in_order(store.table(), lives)
        told = _drives(lives, table, passing, kind)
    kept = folder if out is not None else None
    wrong = [error for error in told["error"].to_pylist() if error is not None]
    if wrong:
        warnings.warn(
            f"{len(wrong)} of {drives} drives have no life and are in no figure, the first: "
            f"{wrong[0]} (all in Fleet.drives, error)",
            RuntimeWarning,
            stacklevel=2,
        )
    return Fleet(told, table, kind.years, kind.windows, kind.seed, kept, drives - known, known)


def _kind(
    drive: str,
    years: float,
    seed: int,
    drawn: tuple[Drawn, Drawn, Drawn],
    workloads: Mapping[str, Any] | None,
    course: tuple[float, int, int],
) -> Kind:
    """A fleet's kind, checked."""
    acceleration, windows, bursts = course
    if not isinstance(drive, str):
        raise TypeError(f"drive: a name is wanted, not {type(drive).__name__}")
    if not drive.startswith("mem:"):
        raise UsageError(f"{drive}: drives of a fleet live in memory: take a mem: drive")
    years = real("years", years, "more than 0, up to 1000", lambda years: 0 < years <= 1000)
    acceleration = real("acceleration", acceleration, "1 or more", lambda fast: fast >= 1)
    windows, bursts = whole("windows", windows, 1, U32), whole("bursts", bursts, 1, U32)
    seed = whole("seed", seed, 0, U64)
    writes, errors, temperature = (
        _drawn(name, of)
        for name, of in zip(("writes", "errors", "temperature"), drawn, strict=True)
    )
    named = _named(MIXED if workloads is None else workloads)
    profile = profile_of(drive)
    if profile["endurance"] / acceleration < 10:
        raise UsageError(
            f"acceleration is {acceleration:g}, and the flash takes {profile['endurance']:g} erases: "
            f"take {profile['endurance'] / 10:g} at most, so that a life has 10 erases or more"
        )
    bare = without(drive, (*OURS, "endurance", "program_failure", "erase_failure"))
    common = (writes, errors, temperature, named, acceleration, windows, bursts, profile)
    kind = Kind(bare, years, seed, *common)
    _check(kind)
    return kind


def _drawn(name: str, of: Any) -> Drawn:
    """A number or a distribution, of which all that may be drawn can be."""
    value: Drawn
    if isinstance(of, (Normal, LogNormal)):
        value, least, most = of, of.at(0.0), of.at(1.0)
    elif isinstance(of, (str, bytes, bool)) or not hasattr(of, "__float__"):
        raise TypeError(f"{name}: give a number, Normal(...) or LogNormal(...)")
    else:
        value = least = most = real(name, of, "a number", lambda _: True)
    if name == "temperature" and not COLDEST <= least <= most <= HOTTEST:
        raise UsageError(
            f"temperature is {said(of)}: all that may be drawn are {COLDEST:g} to {HOTTEST:g} degrees"
        )
    if name != "temperature" and not 0 < least <= most <= HIGHEST[name]:
        raise UsageError(
            f"{name} is {said(of)}: all that may be drawn are above 0, up to {HIGHEST[name]:g}"
        )
    return value


def _named(given: Any) -> dict[str, tuple[float, dict[str, Any]]]:
    """Workloads by name, each with its weight."""
    shape = UsageError(
        "workloads: give options of bench, for example {'rw': 'randrw'}, or several by name: "
        "{'name': (weight, options)}"
    )
    if not isinstance(given, Mapping):
        raise shape
    if not given:
        raise UsageError("no workloads: give options of bench, for example {'rw': 'randrw'}")
    if "rw" in given:
        given = {"all": (1.0, given)}
    named: dict[str, tuple[float, dict[str, Any]]] = {}
    for name, one in given.items():
        pair = one if isinstance(one, (tuple, list)) else (1.0, one)
        if not isinstance(name, str) or len(pair) != 2 or not isinstance(pair[1], Mapping):
            raise shape
        options = dict(pair[1])
        weight = real(
            f"weight of workload {name}", pair[0], "above 0, up to 1e9", lambda w: 0 < w <= 1e9
        )
        named[name] = (weight, options)
        write_share(options)
        block_bytes(options)
        unknown = sorted(str(key) for key in options.keys() - set(WORKLOAD))
        if unknown:
            raise UsageError(
                f"workload {name}: {unknown[0]} is none of a fleet's: take {', '.join(WORKLOAD)}"
            )
    return named


def _check(kind: Kind) -> None:
    """Raises what a life of each workload would, before anything lives."""
    first = life_of(kind, 0)
    for _, options in kind.workloads.values():
        _core.check(first.drive, **options, seed=1)


def _lived(
    lives: Sequence[Life], kind: Kind, store: Store, crew: Crew, bar: Any
) -> tuple[int, dict[str, str]]:
    """Lives what is not known. Gives how many were known, and errors that may pass."""
    there = set(store.table()["key"].to_pylist())
    todo = [life for life in lives if life.key not in there]
    bar.update(len(lives) - len(todo))
    passing: dict[str, str] = {}
    tasks = ((life.key, (life, kind.years, build())) for life in todo)
    for key, lived in crew.results(live, tasks, len(todo)):
        if isinstance(lived, BaseException):
            passing[key] = f"{type(lived).__name__}: {lived}"
            store.add({"key": key, "error": passing[key]}, [])
        else:
            told = {"key": key, "worker": lived.worker, "wall_seconds": lived.seconds}
            if not lived.lasting:
                passing[key] = str(lived.error)
            store.add({**told, "error": passing.get(key)}, lived.rows if lived.lasting else [])
        bar.update(1)
    store.flush()
    return len(lives) - len(todo), passing


def _in_order(table: Any, lives: Sequence[Life]) -> Any:
    """The windows of these drives, by drive and window, each once."""
    number = {life.key: life.number for life in lives}
    drives = np.array([number.get(key, -1) for key in table["key"].to_pylist()], np.int64)
    windows = table["window"].to_numpy()
    order = np.lexsort((windows, drives))
    place = drives[order] * (1 << 32) + windows[order]
    first = np.ones(len(order), bool)
    first[1:] = place[1:] != place[:-1]
    chosen = order[first & (drives[order] >= 0)]
    table = table.take(chosen).combine_chunks()
    pa = optional("pyarrow", "sweep")
    return table.add_column(0, "drive", pa.array(drives[chosen]))


def _drives(lives: Sequence[Life], windows: Any, passing: Mapping[str, str], kind: Kind) -> Any:
    """A row a drive."""
    pa = optional("pyarrow", "sweep")
    last: dict[str, dict[str, Any]] = {}
    needed = windows.select(["key", "years", "worn", "lost_years", "error"])
    for row in needed.to_pylist():
        last[row["key"]] = row
    rows = []
    for life in lives:
        row = last.get(life.key, {"error": passing.get(life.key, "it did not live")})
        lost, worn = row.get("lost_years"), bool(row.get("worn"))
        cause = "lost" if lost is not None else "worn" if worn else None
        end = lost if lost is not None else row["years"] if worn else kind.years
        error = row["error"]
        rows.append(
            {
                "drive": life.number,
                "key": life.key,
                **life.drawn,
                "years": 0.0 if error is not None else min(float(end), kind.years),
                "failed": cause is not None,
                "cause": cause,
                "error": error,
            }
        )
    table = pa.Table.from_pylist(rows)
    for name in ("cause", "error"):
        at = table.column_names.index(name)
        table = table.set_column(at, name, table[name].cast(pa.string()))
    return table
