"""Figures of a run."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray


@dataclass(frozen=True, slots=True)
class Latency:
    """Latencies in ns. A percentile with too few requests behind it is None."""

    mean: float | None
    min: int | None
    max: int | None
    #: How many requests there were.
    n: int
    p50: int | None
    p90: int | None
    p99: int | None
    p999: int | None
    p9999: int | None
    p99999: int | None


@dataclass(frozen=True, slots=True)
class Direction:
    """Reads or writes alone."""

    ios: int
    bytes: int
    #: Requests a second of drive time.
    iops: float
    latency: Latency


@dataclass(frozen=True, slots=True)
class WriteAmplification:
    """Blocks programmed for each that was written; `total` is the sum of the others."""

    total: float
    gc: float
    padding: float
    metadata: float
    user: float


@dataclass(frozen=True, slots=True)
class SteadyState:
    """How the search for the steady state ended."""

    reached: bool
    rounds: int
    #: How many rounds had to agree.
    window: int
    #: The least drive time of a round.
    round_seconds: float
    #: Whether fewer or shorter rounds were asked for than the full rule has.
    weaker: bool


@dataclass(frozen=True, slots=True)
class Collection:
    """What garbage collection did."""

    collections: int
    #: Blocks moved.
    moved: int
    #: Of these, copied inside their dies.
    copied: int


@dataclass(frozen=True, slots=True)
class Cpu:
    """Processor time of what was measured."""

    user_seconds: float
    system_seconds: float
    wall_seconds: float
    #: In all, for each I/O, in ns.
    per_io_ns: float
    #: Of that the tool's own; None where it is not known.
    own_per_io_ns: float | None


@dataclass(frozen=True, slots=True)
class Part:
    """A part of the time of a request."""

    part: str
    #: Behind what it waited; None where it waited behind nothing.
    behind: str | None
    ns: int


@dataclass(frozen=True, slots=True)
class SlowRequest:
    """One of the slowest requests; its parts sum to its latency."""

    op: str
    offset: int
    bytes: int
    #: Since counting began.
    start_ns: int
    latency_ns: int
    parts: tuple[Part, ...]


@dataclass(frozen=True, slots=True, eq=False)
class Dies:
    """How busy dies were; of several groups, all units of one come first."""

    #: Ends of the spans of time, in seconds since the start.
    ends: NDArray[np.float64]
    #: Of each die (row) in each span (column) the part in which it worked, in percent.
    busy: NDArray[np.float64]
    #: Units in a group.
    pus: int


@dataclass(frozen=True, slots=True, eq=False)
class Chunks:
    """The chunks of a drive, a die a row, at the end of the run."""

    #: Neighbouring chunks that are told as one.
    each: int
    #: f (free), o (open), c (closed) or x (offline).
    states: NDArray[np.str_]
    #: How often each was erased, in the mean.
    erases: NDArray[np.float64]
    #: How much of each is valid, in percent; None where that is not told.
    valid: NDArray[np.float64] | None
    #: Units in a group.
    pus: int
