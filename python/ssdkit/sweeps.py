"""Sweeps: many runs, on the processors of this machine or of a cluster.

The runs are tasks of `Dask <https://distributed.dask.org>`_. Each row follows from its
configuration alone, so that it is the same to the bit wherever and in whatever order runs
end; what was run before is not run again.
"""

from __future__ import annotations

import hashlib
import os
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

from ssdkit._core import Error, UsageError
from ssdkit._crew import CONNECT, TEMPORARY, Crew
from ssdkit._folders import temporary
from ssdkit.sweep_extra import build, optional
from ssdkit.sweep_grid import Grid, Knee, LatinHypercube, Point, Range, Sobol, key_of, points_of
from ssdkit.sweep_run import (
    Outcome,
    Run,
    WorkerVersionError,
    aged_folder,
    base_of,
    forget_aged,
    perform,
    run_of,
)
from ssdkit.sweep_store import Store, table_of

__all__ = ["Knee", "LatinHypercube", "Range", "Sobol", "Sweep", "WorkerVersionError", "sweep"]


@dataclass
class Sweep:
    """The rows of a sweep, in the order of its grid."""

    #: An Arrow table: the points' columns, ``key``, ``error``, and figures by name.
    table: Any
    #: The folder of the rows, where there is one.
    folder: Path | None
    #: Runs that were run now.
    ran: int
    #: Rows that were there before.
    known: int
    #: Rows with an error.
    failed: int

    def __len__(self) -> int:
        return int(self.table.num_rows)

    def __repr__(self) -> str:
        at = f" in {self.folder}" if self.folder else ""
        return f"<Sweep of {len(self)} rows{at}: {self.ran} run, {self.known} known, {self.failed} failed>"

    def rows(self) -> list[dict[str, Any]]:
        """The rows as dicts."""
        listed: list[dict[str, Any]] = self.table.to_pylist()
        return listed

    def to_arrow(self) -> Any:
        """The Arrow table itself."""
        return self.table

    def to_pandas(self) -> Any:
        """A pandas frame over the table, without a copy where a column has no gaps."""
        optional("pandas", "sweep")
        return self.table.to_pandas(split_blocks=True)

    def __arrow_c_stream__(self, requested_schema: object = None) -> object:
        return self.table.__arrow_c_stream__(requested_schema)


def sweep(
    base: str | Mapping[str, Any],
    grid: Grid,
    *,
    out: str | os.PathLike[str] | None = None,
    scheduler: Any = None,
    workers: int | None = None,
    share: bool = True,
    reports: bool = False,
    invalid: str = "refuse",
    connect_timeout: float = CONNECT,
    progress: bool | None = None,
) -> Sweep:
    """Runs ``bench`` (or ``replay``) for each point of a grid.

    ``base`` is what all runs have in common: ``drive``, options of ``bench``, or ``trace``
    and options of ``replay``. ``grid`` is a dict of lists (each value with each other), a
    list of dicts, :class:`LatinHypercube`, :class:`Sobol`, :class:`Knee`, or a tuple of
    these, each point of one with each of the others. A key is an option, ``drive``,
    ``drive.KEY`` for a key of the drive's name, or ``drive.profile``.

    ``out`` is a folder for the rows, as Parquet: what is there is not run again, so that a
    sweep that was killed goes on where it was. ``scheduler`` is the address of a Dask
    scheduler, or a ``distributed.Client``; without it ``workers`` processes are started
    here, one for each processor. ``share``: runs that differ only in what comes after
    preconditioning share one aged drive; a row is then what ``bench`` gives with
    ``snapshot``, and without it what it gives without. ``reports`` keeps each whole report
    as JSON, in the column ``report``. ``invalid="row"``: a point that cannot be is a row
    with its error, and does not end the sweep. ``connect_timeout`` is how long a scheduler
    has for its answer, in seconds. ``progress`` shows a bar; by default on a terminal.

    Raises :class:`ssdkit.UsageError`, before anything is run, for a grid that is empty or
    contradicts the base or itself, for a point that cannot be, and for what is no address of a
    scheduler; :class:`ssdkit.Error` for a full disk, for a scheduler that does not answer, and
    for a worker that has another build of ssdkit. A run that fails is
    a row with its ``error``. Ctrl-C ends it at once; what came is kept.

    >>> done = sweep(
    ...     {"drive": "mem:tlc,size=64M,store=none", "rw": "randread", "ios": 1000},
    ...     {"qd": [1, 16]},
    ...     workers=1,
    ... )
    >>> [row["qd"] for row in done.rows() if row["iops"] > 0]
    [1, 16]
    """
    if invalid not in ("refuse", "row"):
        raise UsageError(f"invalid is {invalid!r}: take 'refuse' or 'row'")
    crew = Crew(scheduler, workers, connect_timeout)
    points = points_of(grid)
    common = base_of(base, points.keys)
    tried = _Tried(common, share, invalid)
    plan = [tried.run(point) for point in points.points]
    tried.refuse()
    for module in ("pyarrow", "distributed"):
        optional(module, "sweep")
    with ExitStack() as stack:
        folder = Path(out) if out is not None else stack.enter_context(temporary(TEMPORARY))
        # Workers may serve sweeps of several machines, whose folders have the same names.
        told_apart = f"{os.uname().nodename}:{folder.resolve()}"
        place = hashlib.sha256(told_apart.encode(errors="surrogateescape")).hexdigest()[:16]
        store = stack.enter_context(Store(folder))
        if scheduler is None and share:
            # Here it is known how long they are needed: as long as this process goes on.
            stack.callback(forget_aged, place)
            stack.enter_context(aged_folder(place))
        crew.after = partial(forget_aged, place)
        stack.enter_context(crew)
        bar = stack.enter_context(bar_of(progress, len(plan)))
        rounds = _Rounds(store, crew, tried, (reports, place), bar)
        rounds.run(plan)
        if points.knee is not None:
            plan = rounds.refine(plan, points.knee)
        store.flush()
        table = rounds.table(plan)
        store.result(table)
    failed = len(table) - table["error"].null_count
    kept = folder if out is not None else None
    return Sweep(table, kept, rounds.ran, rounds.known, failed)


class _Tried:
    """Points become runs; what cannot be is kept until all were looked at."""

    def __init__(self, base: dict[str, Any], share: bool, invalid: str) -> None:
        self.base, self.share, self.invalid = base, share, invalid
        self.wrong: list[tuple[Point, Error]] = []
        self.points = 0

    def run(self, point: Point) -> tuple[Point, Run | str]:
        """The run of a point, or why there is none."""
        self.points += 1
        try:
            return point, run_of(self.base, point, self.share)
        except Error as e:
            self.wrong.append((point, e))
            return point, str(e)

    def refuse(self) -> None:
        """Raises where a point cannot be, and is to be refused. What is wrong with all of
        them is wrong with the sweep."""
        if not self.wrong or (self.invalid == "row" and len(self.wrong) < self.points):
            return
        texts: dict[str, Point] = {}
        for point, e in self.wrong:
            texts.setdefault(str(e), point)
        shown = "; ".join(f"{told(point)}: {text}" for text, point in list(texts.items())[:3])
        more = "; and others" if len(texts) > 3 else ""
        hint = "; leave them out, or take invalid='row'" if len(self.wrong) < self.points else ""
        raise UsageError(
            f"{len(self.wrong)} of {self.points} points cannot be: {shown}{more}{hint}"
        ) from self.wrong[0][1]


def told(point: Point) -> str:
    """A point in a few words."""
    return " ".join(f"{key}={value}" for key, value in point.items())


class _Rounds:
    """Runs what is not known yet, and knows all rows."""

    def __init__(
        self, store: Store, crew: Crew, tried: _Tried, how: tuple[bool, str], bar: Any
    ) -> None:
        self.store, self.crew, self.tried, self.bar = store, crew, tried, bar
        self.keep, self.place = how
        self.rows: dict[str, dict[str, Any]] = {}
        self.ran = self.known = 0

    def run(self, plan: Sequence[tuple[Point, Run | str]]) -> None:
        """Runs all of a plan of which no row is known."""
        runs = {run.key: run for _, run in plan if isinstance(run, Run)}
        wanted = [key for key in runs if key not in self.rows]
        known = {row["key"]: row for row in self._there(set(wanted))}
        if self.keep:
            # One without its report is run again for that.
            known = {key: row for key, row in known.items() if row["report"] or row["error"]}
        self.rows.update(known)
        self.known += len(known)
        self.bar.update(len(plan) - len(wanted) + len(known))
        todo = [runs[key] for key in wanted if key not in known]
        tasks = ((run.key, (run, build(), self.keep, self.place)) for run in todo)
        for key, done in self.crew.results(perform, tasks, len(todo)):
            # A worker that died over it, as often as Dask tries.
            outcome = (
                done
                if isinstance(done, Outcome)
                else Outcome(key, {}, f"{type(done).__name__}: {done}", False, 0.0, "")
            )
            row = {"key": key, "error": outcome.error, **outcome.row}
            self.store.add(run_told(outcome), [row] if outcome.lasting else [])
            self.rows[key] = row
            self.ran += 1
            self.bar.update(1)

    def _there(self, keys: set[str]) -> list[dict[str, Any]]:
        """The rows of these keys that are there."""
        if not keys:
            return []
        pc, pa = optional("pyarrow.compute", "sweep"), optional("pyarrow", "sweep")
        table = self.store.table()
        wanted = pc.is_in(table["key"], value_set=pa.array(sorted(keys), pa.string()))
        rows: list[dict[str, Any]] = table.filter(wanted).to_pylist()
        return rows

    def refine(
        self, plan: list[tuple[Point, Run | str]], knee: Knee
    ) -> list[tuple[Point, Run | str]]:
        """Adds points until each search for a knee has found it. All searches go on
        together, so that what is asked next depends on nothing but the rows."""
        name = key_of(knee.key)
        searches: dict[str, list[tuple[Point, Run | str]]] = {}
        for point, run in plan:
            others = {key: value for key, value in point.items() if key != name}
            searches.setdefault(repr(others), []).append((point, run))
        while True:
            added = []
            for search in searches.values():
                value = knee.next({point[name]: self._metric(run, knee) for point, run in search})
                if value is not None:
                    added.append(self.tried.run({**search[0][0], name: value}))
                    search.append(added[-1])
            if not added:
                break
            self.bar.total = (self.bar.total or 0) + len(added)
            self.run(added)
        return [
            one for all_ in searches.values() for one in sorted(all_, key=lambda one: one[0][name])
        ]

    def _metric(self, run: Run | str, knee: Knee) -> float:
        row = self.rows[run.key] if isinstance(run, Run) else {}
        if isinstance(run, Run) and knee.metric not in row and row.get("error") is None:
            raise UsageError(f"{knee.metric}: rows have no such figure: take iops, for example")
        value = row.get(knee.metric)
        return float("nan") if value is None else float(value)

    def table(self, plan: Sequence[tuple[Point, Run | str]]) -> Any:
        """All rows of a plan, in its order."""
        rows = [
            self.rows[run.key] if isinstance(run, Run) else {"key": None, "error": run}
            for _, run in plan
        ]
        if not self.keep:
            rows = [{**row, "report": None} for row in rows]
        return table_of([point for point, _ in plan], rows)


def run_told(outcome: Outcome) -> dict[str, Any]:
    """What is the machine's own of a run."""
    passing = None if outcome.lasting else outcome.error
    told = {"key": outcome.key, "worker": outcome.worker, "error": passing}
    return {**told, "wall_seconds": outcome.seconds}


class _NoBar:
    total: int | None = 0

    def update(self, n: int) -> None:
        """Nobody looks."""


@contextmanager
def bar_of(progress: bool | None, total: int) -> Iterator[Any]:
    """A bar of tqdm, where it is wanted and there."""
    if progress is False or (progress is None and not sys.stderr.isatty()):
        yield _NoBar()
        return
    try:
        tqdm = optional("tqdm.auto", "sweep")
    except Error:
        if progress:
            raise
        yield _NoBar()
        return
    with tqdm.tqdm(total=total, unit="run") as bar:
        yield bar
