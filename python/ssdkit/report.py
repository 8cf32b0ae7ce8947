"""What a run gave: figures, latencies, what happened when, and why."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from html import escape
from typing import Any, TypeVar

import numpy as np
from numpy.typing import NDArray

from ssdkit import _report_form
from ssdkit._core import Outcome, UsageError, compare, in_words
from ssdkit.figures import (
    Chunks,
    Collection,
    Cpu,
    Dies,
    Direction,
    Latency,
    Part,
    SlowRequest,
    SteadyState,
    WriteAmplification,
)
from ssdkit.histogram import Histogram
from ssdkit.table import Table

T = TypeVar("T")

#: Columns of a text on a terminal.
_WIDTH = 90
#: Requests of which latencies are kept apart.
_KINDS = ("all", "reads", "writes", "trims", "flushes")


class Report:
    """What a run gave; of `ssdkit.bench`, `ssdkit.replay`, or a file of `ssdkit bench --json`.

    Figures are attributes; what else the JSON of the command has is `report["key"]`.
    Times in latencies are in ns, all others in seconds. Of a report that is damaged an
    attribute raises UsageError, which says where.

    >>> import ssdkit
    >>> report = ssdkit.bench("mem:znand,size=64M", rw="randread", qd=8, ios=20_000)
    >>> report.ios, report.latency.n, report.write_amplification
    (20000, 20000, None)
    >>> report.histogram().percentile(99.9) == report.latency.p999
    True
    >>> sorted(report.series)[:3]
    ['collections', 'erases', 'free_chunks']
    """

    def __init__(self, source: Outcome | Mapping[str, Any]) -> None:
        self._outcome = source if isinstance(source, Outcome) else None
        self._dict: dict[str, Any] | None = None
        self._cells: dict[str, Histogram] = {}
        self._series: Table | None = None
        self._source = "the report"
        #: What of it was found to be what it is to be.
        self._sound: set[str] = set()
        if not isinstance(source, Outcome):
            self._dict = dict(source)

    @classmethod
    def load(cls, path: str | os.PathLike[str]) -> Report:
        """The report of a file that `ssdkit bench --json`, or `save`, wrote.

        Raises UsageError where it is no such report, or one that is damaged, and OSError.
        """
        with open(path, "rb") as file:
            text = file.read()
        name = os.fsencode(path).decode(errors="replace")
        try:
            found = json.loads(text)
        except (ValueError, RecursionError) as error:
            raise UsageError(f"{name}: {error}; it is no JSON of ssdkit bench --json") from None
        # What is another command's is told by that check.
        if isinstance(found, dict) and not {"fio version", "verdict"} & found.keys():
            report = cls(found)
            report._source = name
            for key in _report_form.FORM:
                report._part(key)
        # The same check as of a file that is compared.
        compare([(name, text.decode(errors="replace"))])
        return report

    def save(self, path: str | os.PathLike[str]) -> None:
        """Writes it as JSON, for `load` and `ssdkit compare`. Raises OSError."""
        with open(path, "w", encoding="utf-8") as file:
            file.write(self.to_json() + "\n")

    def to_dict(self) -> dict[str, Any]:
        """All of it, as `ssdkit bench --json` prints it; not to be changed."""
        if self._dict is None:
            assert self._outcome is not None
            self._dict = self._outcome.to_dict()
        return self._dict

    def to_json(self) -> str:
        """The same as a text."""
        if self._outcome is not None:
            return self._outcome.to_json()
        return json.dumps(self._dict)

    def _part(self, key: str) -> Any:
        """What the JSON has by this name, which is what it is to be; None where it has none."""
        found = self.to_dict()
        if self._outcome is None and key not in self._sound:
            _report_form.check(self._source, found, key)
            self._sound.add(key)
        return found.get(key)

    def __getitem__(self, key: str) -> Any:
        return self.to_dict()[key]

    def __contains__(self, key: object) -> bool:
        return key in self.to_dict()

    def get(self, key: str, default: Any = None) -> Any:
        """What the JSON has by this name, or `default`."""
        return self.to_dict().get(key, default)

    # What a report always has.

    @property
    def name(self) -> str:
        """The drive's name."""
        drive = self._part("drive")
        return str(drive.get("name") or drive.get("profile") or "drive")

    @property
    def drive(self) -> dict[str, Any]:
        """The drive's effective configuration."""
        return dict(self._part("drive"))

    @property
    def workload(self) -> dict[str, Any]:
        """The workload's effective configuration."""
        return dict(self._part("workload"))

    @property
    def ios(self) -> int:
        """Requests that did what they were asked; flushes apart."""
        return int(self._part("ios"))

    @property
    def iops(self) -> float:
        """Requests a second of drive time."""
        return float(self._part("iops"))

    @property
    def bytes(self) -> int:
        """Bytes read and written."""
        return int(self._part("bytes"))

    @property
    def bytes_per_second(self) -> float:
        """Bytes a second of drive time."""
        return float(self._part("bytes_per_second"))

    @property
    def seconds(self) -> float:
        """How long it took on the drive's clock."""
        return float(self._part("seconds"))

    @property
    def wall_seconds(self) -> float:
        """How long all of it took on the wall."""
        return float(self._part("wall_seconds"))

    @property
    def errors(self) -> int:
        """Requests that failed, or came back with wrong data."""
        return int(self._part("errors"))

    @property
    def failed_requests(self) -> int:
        """Requests that failed; they are in no other figure."""
        return int(self._part("failed_requests"))

    @property
    def void(self) -> str | None:
        """Why rates and latencies mean nothing; None where they do."""
        void: str | None = self._part("void")
        return void

    @property
    def interrupted(self) -> bool:
        """Whether it was stopped before its end."""
        return bool(self._part("interrupted"))

    @property
    def seed(self) -> int:
        """The seed: the same seed, configuration and version give the same run."""
        return int(self._part("seed"))

    @property
    def version(self) -> str:
        """The version of ssdkit."""
        return str(self._part("version"))

    @property
    def latency(self) -> Latency:
        """Latencies of all requests."""
        return _figures(Latency, self._part("latency_ns"))

    @property
    def reads(self) -> Direction | None:
        """Reads alone, where there are writes as well."""
        return self._direction("read")

    @property
    def writes(self) -> Direction | None:
        """Writes alone, where there are reads as well."""
        return self._direction("write")

    @property
    def cpu(self) -> Cpu:
        """Processor time of what was measured."""
        return _figures(Cpu, self._part("cpu"))

    @property
    def write_amplification(self) -> WriteAmplification | None:
        """None where nothing was written, and of a drive that does not tell."""
        found = self._part("write_amplification")
        return _figures(WriteAmplification, found) if found else None

    @property
    def steady(self) -> SteadyState | None:
        """Whether the steady state was reached; None where it was not sought."""
        found = self._part("steady")
        return _figures(SteadyState, found) if found else None

    @property
    def gc(self) -> Collection | None:
        """What garbage collection did; None of a drive that does not tell."""
        found = self._part("gc")
        return _figures(Collection, found) if found else None

    @property
    def erases(self) -> int | None:
        """Chunks erased; None of a drive that does not tell."""
        erases: int | None = self._part("erases")
        return erases

    @property
    def warnings(self) -> tuple[str, ...]:
        """What went wrong without making the run fail."""
        return tuple(self._part("warnings") or ())

    def _direction(self, name: str) -> Direction | None:
        found = self._part(name)
        if not found:
            return None
        latency = _figures(Latency, found["latency_ns"])
        return Direction(found["ios"], found["bytes"], found["iops"], latency)

    # What is more than a figure.

    def histogram(self, kind: str = "all") -> Histogram:
        """How the latencies lie of all requests, or of reads, writes, trims or flushes.

        A report that was read from a file has those of all, each to an eighth of a power
        of two. Raises ValueError for another kind, UsageError for one that it has not.
        """
        if kind not in _KINDS:
            raise ValueError(f"{kind!r} is no kind of request: {', '.join(_KINDS)}")
        if kind not in self._cells:
            if self._outcome is not None:
                ns, n = self._outcome.histogram(kind)
            elif kind == "all":
                found = self._part("distribution")
                ends = np.array(found["below_ns"], np.uint64)
                longest = self.latency.max or 0
                ns, n = np.minimum(ends, np.uint64(longest)), np.array(found["n"], np.uint64)
            else:
                raise UsageError(f"a report from a file has no latencies of {kind} alone")
            self._cells[kind] = Histogram(ns, n, self._longest(kind, ns))
        return self._cells[kind]

    def _longest(self, kind: str, ns: NDArray[np.uint64]) -> int:
        of = {"all": self.latency, "reads": self.reads, "writes": self.writes}.get(kind)
        latency = of.latency if isinstance(of, Direction) else of
        if latency is not None and latency.max is not None:
            return latency.max
        return int(ns[-1]) if len(ns) else 0

    @property
    def series(self) -> Table:
        """What happened in each second of drive time, or in more of a long run.

        Columns: `second` (when the row begins), `seconds` (how long it is), `ios`,
        `iops`, `p50` and `p999` (ns), `write_amplification`, `free_chunks`,
        `collections`, `erases`, and blocks `programmed_user`, `_gc`, `_padding`,
        `_metadata`, `_parity`, `_folds`.
        """
        if self._series is None:
            if self._outcome is not None:
                columns: Mapping[str, NDArray[Any]] = self._outcome.series()
            else:
                columns = _series(self._part("series"))
            self._series = Table(columns)
        return self._series

    @property
    def slowest(self) -> tuple[SlowRequest, ...]:
        """The slowest requests, of a run with `slowest=N`, or one that was explained."""

        def one(found: dict[str, Any]) -> SlowRequest:
            parts = tuple(Part(p["part"], p.get("behind"), p["ns"]) for p in found["parts"])
            start = found.get("start_ns") or 0
            size = found["bytes"]
            return SlowRequest(
                found["op"], found["offset"], size, start, found["latency_ns"], parts
            )

        return tuple(one(found) for found in self._part("slowest") or ())

    @property
    def stories(self) -> Table:
        """The same as a table, a part of a request a row.

        Columns: `request` (0 is the slowest), `op`, `offset`, `bytes`, `start_ns`,
        `latency_ns`, `part`, `behind`, `ns`.
        """
        names = {"request": int, "op": str, "offset": int, "bytes": int}
        names |= {"start_ns": int, "latency_ns": int, "part": str, "behind": str, "ns": int}
        rows = [
            (
                *(at, slow.op, slow.offset, slow.bytes, slow.start_ns, slow.latency_ns),
                *(part.part, part.behind or "", part.ns),
            )
            for at, slow in enumerate(self.slowest)
            for part in slow.parts
        ]
        return Table.of_rows(names, rows)

    @property
    def causes(self) -> Table:
        """Where the time of all requests went, and of the slowest shares of them.

        Empty but of a run that was explained. Columns: `kind` (reads, writes, others),
        `share` (of 1), `requests`, `from_ns` (what the fastest of them took), `part`,
        `behind`, `ns`. The parts of a share sum to its time.
        """
        names = {"kind": str, "share": float, "requests": int, "from_ns": int}
        names |= {"part": str, "behind": str, "ns": float}
        rows = [
            (
                *(kind, group["share"], group["requests"], group["from_ns"]),
                *(part["part"], part.get("behind") or "", part["ns"]),
            )
            for kind, groups in (self._part("explained") or {}).items()
            for group in groups
            for part in group["parts"]
        ]
        return Table.of_rows(names, rows)

    @property
    def tails(self) -> Table:
        """Where the time of the slowest requests of each row of the series went.

        Columns: `second`, `requests`, `from_ns`, `part`, `behind`, `ns`.
        """
        names = {"second": float, "requests": int, "from_ns": int}
        names |= {"part": str, "behind": str, "ns": int}
        rows = [
            (
                *(row["second"], tail["requests"], tail["from_ns"]),
                *(part["part"], part.get("behind") or "", part["ns"]),
            )
            for row in self._part("series")
            if (tail := row.get("tail"))
            for part in tail["parts"]
        ]
        return Table.of_rows(names, rows)

    @property
    def dies(self) -> Dies | None:
        """How busy its dies were; of a run with `pictures=True`, else None."""
        found = self._part("dies")
        if not found:
            return None
        return Dies(np.array(found["ends"], float), _numbers(found["busy"]), found["pus"])

    @property
    def chunks(self) -> Chunks | None:
        """Its chunks at the end; None of a drive that does not tell."""
        found = self._part("chunks")
        if not found:
            return None
        valid = found.get("valid")
        return Chunks(
            each=found["each"],
            states=np.array([list(line) for line in found["states"]]),
            erases=_numbers(found["erases"]),
            valid=_numbers(valid) if valid else None,
            pus=found["pus"],
        )

    # How it is shown.

    def __str__(self) -> str:
        if self._outcome is not None:
            return self._outcome.text(_WIDTH)
        return self._line()

    def __repr__(self) -> str:
        if self._outcome is None:
            return self._line()
        # The drive, the workload, and how much was done.
        text = self._outcome.text(_WIDTH).split("\n\n")
        return "\n\n".join(text[:3]) if self.void is None else "\n\n".join(text[:4])

    def _line(self) -> str:
        if self.void:
            return f"{self.name}: void: {self.void}"
        rate, latency = in_words("count", round(self.iops)), self.latency
        p99 = "-" if latency.p99 is None else in_words("time", latency.p99)
        return f"{self.name}: {rate} I/Os a second, p99 {p99}, seed {self.seed}"

    def _repr_html_(self) -> str:
        if self.void:
            return f"<p><b>{escape(self.name)}</b>: void: {escape(self.void)}</p>"
        whole = Direction(self.ios, self.bytes, self.iops, self.latency)
        each = {"all": whole, "reads": self.reads, "writes": self.writes}
        columns = {name: of for name, of in each.items() if of is not None}
        rows = [("I/Os", [in_words("count", of.ios) for of in columns.values()])]
        rows.append(("IOPS", [in_words("count", round(of.iops)) for of in columns.values()]))
        for name in ("mean", "p50", "p90", "p99", "p999", "p9999", "p99999", "max"):
            times = [getattr(of.latency, name) for of in columns.values()]
            words = ["-" if ns is None else in_words("time", ns) for ns in times]
            rows.append((name if name[0] != "p" else _percentile(name), words))
        head = "".join(f"<th>{name}</th>" for name in ("", *columns))
        body = "".join(
            f"<tr><th>{label}</th>{''.join(f'<td>{cell}</td>' for cell in cells)}</tr>"
            for label, cells in rows
        )
        load = ", ".join(f"{key}={value}" for key, value in self.workload.items() if value)
        caption = f"<b>{escape(self.name)}</b>, seed {self.seed}<br>{escape(load)}"
        table = f"<table><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table>"
        amplification = self.write_amplification
        last = f"<p>write amplification {amplification.total:.3f}</p>" if amplification else ""
        return f"<p>{caption}</p>{table}{last}"

    def __reduce__(self) -> tuple[Any, ...]:
        """Between processes goes all that it says, latencies and series with it."""
        cells = {kind: self.histogram(kind) for kind in _KINDS} if self._outcome else self._cells
        return _again, (self.to_dict(), cells)


def _again(found: dict[str, Any], cells: dict[str, Histogram]) -> Report:
    report = Report(found)
    report._cells = cells
    return report


def _figures(of: type[T], found: Mapping[str, Any]) -> T:
    """Figures by their names; what a later version has beside them is left out."""
    names = of.__match_args__  # type: ignore[attr-defined]
    return of(**{name: found.get(name) for name in names})


def _percentile(name: str) -> str:
    """p999 is p99.9."""
    return name if len(name) <= 3 else f"{name[:3]}.{name[3:]}"


def _numbers(lines: list[str]) -> NDArray[np.float64]:
    return np.array([line.split() for line in lines], float)


def _series(rows: list[dict[str, Any]]) -> dict[str, NDArray[Any]]:
    """The columns of a series that was read from a file."""

    def column(get: Any) -> NDArray[np.float64]:
        values = [get(row) for row in rows]
        return np.array([np.nan if value is None else value for value in values], float)

    names = ["second", "seconds", "iops", "p50", "p999", "write_amplification"]
    names += ["free_chunks", "collections", "erases"]
    columns: dict[str, NDArray[Any]] = {
        name: column(lambda row, name=name: row.get(name)) for name in names
    }
    for reason in ("user", "gc", "padding", "metadata", "parity", "folds"):
        columns[f"programmed_{reason}"] = column(
            lambda row, reason=reason: (row.get("programmed") or {}).get(reason)
        )
    columns["ios"] = np.array([row["ios"] for row in rows], np.uint64)
    return columns
