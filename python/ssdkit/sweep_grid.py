"""What a sweep runs: grids, lists, samplers, and a search for a knee.

A *point* is a dict of what changes, by key. Keys are options of ``bench`` (or of
``replay``, where the base has a ``trace``), ``drive`` for a whole name, ``drive.KEY`` for a
key of the drive's name, and ``drive.profile``. Everything here is decided before anything
runs, but for a :class:`Knee`, which asks for more when it has seen the rows so far.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

from ssdkit._core import UsageError
from ssdkit._numbers import U64, real, whole
from ssdkit.sweep_extra import optional

Point: TypeAlias = dict[str, Any]

#: Points of a sweep, of a sampler and of a search for a knee, at most: all are in memory.
MOST_POINTS = 1 << 20

#: fio's names for the same options.
ALIASES = {
    "readwrite": "rw",
    "blocksize": "bs",
    "iodepth": "qd",
    "numjobs": "threads",
    "runtime": "time",
    "ramp_time": "ramp",
    "rwmixread": "read_percent",
}


def key_of(key: str) -> str:
    """The one name of a key: underscores, and no alias.

    >>> key_of("read-percent"), key_of("iodepth"), key_of("drive.spare")
    ('read_percent', 'qd', 'drive.spare')
    """
    if not isinstance(key, str):
        raise TypeError(f"{key!r}: a key is a text, for example 'qd'")
    if key.startswith("drive."):
        return key
    key = key.replace("-", "_")
    return ALIASES.get(key, key)


@dataclass(frozen=True)
class Range:
    """Values from ``low`` to ``high``, both included; ``log``: evenly by their logarithm;
    ``integer``: whole ones.

    >>> [Range(1, 256, log=True, integer=True).at(share) for share in (0.0, 0.5, 1.0)]
    [1, 16, 256]
    """

    low: float
    high: float
    log: bool = False
    integer: bool = False

    def __post_init__(self) -> None:
        for end in (self.low, self.high):
            real("a range's end", end, "a finite number", lambda _: True)
        if not self.low < self.high:
            raise UsageError(f"{self}: a range goes from a number to a larger one")
        if self.log and self.low <= 0:
            raise UsageError(f"{self}: a range with log begins above 0")
        if self.integer and math.ceil(self.low) > math.floor(self.high):
            raise UsageError(f"{self}: no whole number is in it")

    def at(self, share: float) -> float | int:
        """The value at a share, 0 to 1, of the range."""
        if self.log:
            low, high = math.log(self.low), math.log(self.high)
            value = math.exp(low + share * (high - low))
        else:
            value = self.low + share * (self.high - self.low)
        value = min(max(value, self.low), self.high)
        if self.integer:
            return min(max(round(value), math.ceil(self.low)), math.floor(self.high))
        # So that a value reads back as the same, and is no longer than it needs to be.
        return float(f"{value:.9g}")

    def share(self, value: float) -> float:
        """Where in the range a value lies, 0 to 1."""
        if self.log:
            low, high = math.log(self.low), math.log(self.high)
            return (math.log(value) - low) / (high - low)
        return (value - self.low) / (self.high - self.low)


def range_of(key: str, given: object) -> Range:
    """A range, or a pair of numbers as one."""
    if isinstance(given, Range):
        return given
    if isinstance(given, Sequence) and not isinstance(given, str) and len(given) == 2:
        low, high = given
        if all(isinstance(end, (int, float)) and not isinstance(end, bool) for end in given):
            return Range(low, high)
    if isinstance(given, Mapping):
        known = {"from", "to", "log", "integer"}
        if set(given) <= known and {"from", "to"} <= set(given):
            return Range(
                given["from"], given["to"], given.get("log", False), given.get("integer", False)
            )
    raise UsageError(f"{key}: {given!r} is no range: write (low, high) or Range(low, high, ...)")


class _Sampler:
    """``n`` points drawn from ranges by key, the same for the same ``seed``."""

    def __init__(self, n: int, ranges: Mapping[str, Any], seed: int = 0) -> None:
        n = whole(f"n of {type(self).__name__}", n, 1, MOST_POINTS)
        seed = whole(f"seed of {type(self).__name__}", seed, 0, U64)
        if not ranges:
            raise UsageError(f"{type(self).__name__}: no ranges: name a key and its range")
        self.n = n
        self.seed = seed
        self.ranges = _by_key(ranges, range_of)

    def shares(self) -> Iterable[Iterable[float]]:
        """Points of the unit cube."""
        raise NotImplementedError

    def points(self) -> list[Point]:
        """The points."""
        keys = list(self.ranges)
        return [
            {key: self.ranges[key].at(float(share)) for key, share in zip(keys, row, strict=True)}
            for row in self.shares()
        ]


class LatinHypercube(_Sampler):
    """``n`` points, of which each ``n``-th part of each range has one.

    ``ranges`` is by key; ``seed`` is what is drawn from. Needs SciPy.

    >>> drawn = LatinHypercube(4, {"qd": Range(1, 64, log=True, integer=True)}, seed=3)
    >>> len(drawn.points())
    4
    """

    def shares(self) -> Iterable[Iterable[float]]:
        qmc = optional("scipy.stats.qmc", "sweep")
        rows: Iterable[Iterable[float]] = qmc.LatinHypercube(len(self.ranges), rng=self.seed)
        return rows.random(self.n)  # type: ignore[attr-defined, no-any-return]


class Sobol(_Sampler):
    """``n`` points of a scrambled Sobol sequence: even in all keys at once. Best for a power
    of 2. ``ranges`` and ``seed`` as of :class:`LatinHypercube`. Needs SciPy.

    >>> drawn = Sobol(4, {"drive.spare": (0, 4)}, seed=1).points()
    >>> sorted(int(point["drive.spare"]) for point in drawn)
    [0, 1, 2, 3]
    """

    def shares(self) -> Iterable[Iterable[float]]:
        qmc = optional("scipy.stats.qmc", "sweep")
        # Of so many as are asked for, a power of 2 is drawn: a part of one is what is
        # left of it, and no warning is due.
        power = max(self.n - 1, 0).bit_length()
        rows: Iterable[Iterable[float]] = qmc.Sobol(len(self.ranges), rng=self.seed).random_base2(
            power
        )[: self.n]
        return rows


@dataclass(frozen=True)
class Knee:
    """Finds where ``metric`` (a column of the rows) bends over ``key``: begins with ``start``
    points evenly over ``range``, then halves the wider interval beside the point at which
    the slope changes most, until there are ``points``, or both intervals are no wider than
    ``narrow``, a share of the range.

    With other grids each of their points has a search of its own.

    >>> knee = Knee("qd", Range(1, 256, log=True, integer=True), "iops", points=9)
    >>> [point["qd"] for point in knee.first()]
    [1, 4, 16, 64, 256]
    """

    key: str
    range: Range
    metric: str
    points: int = 16
    start: int = 5
    narrow: float = 0.01

    def __post_init__(self) -> None:
        object.__setattr__(self, "range", range_of(self.key, self.range))
        whole(f"points of the knee of {self.key}", self.points, 3, MOST_POINTS)
        if not 3 <= self.start <= self.points:
            raise UsageError(
                f"Knee of {self.key}: start is {self.start} and points {self.points}: "
                "begin with 3 points or more, and at most as many as there are to be"
            )
        if not 0 < self.narrow < 1:
            raise UsageError(
                f"Knee of {self.key}: narrow is a share of the range, above 0, below 1"
            )

    def first(self) -> list[Point]:
        """The points that it begins with."""
        values = [self.range.at(n / (self.start - 1)) for n in range(self.start)]
        return [{self.key: value} for value in dict.fromkeys(values)]

    def next(self, seen: Mapping[float, float]) -> float | None:
        """The value to look at next, from metrics by value; none when it is done."""
        known = sorted((x, y) for x, y in seen.items() if y is not None and math.isfinite(y))
        if len(seen) >= self.points or len(known) < 3:
            return None
        most = max(abs(y) for _, y in known) or 1.0
        at = [(self.range.share(x), y / most) for x, y in known]

        def slope(n: int) -> float:
            return (at[n + 1][1] - at[n][1]) / (at[n + 1][0] - at[n][0])

        bends = [(abs(slope(n) - slope(n - 1)), -n) for n in range(1, len(at) - 1)]
        for _, minus in sorted(bends, reverse=True):
            n = -minus
            sides = [(at[n][0] - at[n - 1][0], n - 1), (at[n + 1][0] - at[n][0], n)]
            for width, left in sorted(sides, key=lambda side: -side[0]):
                value = self.range.at((at[left][0] + at[left + 1][0]) / 2)
                if width > self.narrow and value not in seen:
                    return value
            # Its intervals are as narrow as they are to be: it is found.
            return None
        return None


Grid: TypeAlias = Mapping[str, Any] | Sequence[Any] | _Sampler | Knee


def _by_key(given: Mapping[str, Any], read: Any) -> dict[str, Any]:
    """Values by the one name of their key; a key that is there twice is refused."""
    all_: dict[str, Any] = {}
    for name, value in given.items():
        key = key_of(name)
        if key in all_:
            raise UsageError(f"{key} is there twice, also as {name}: leave one out")
        all_[key] = read(key, value)
    return all_


def _values(key: str, values: object) -> list[Any]:
    """The values of a key of a product."""
    if isinstance(values, (str, bytes, Mapping)) or not isinstance(values, Iterable):
        raise UsageError(f"{key}: a grid has a list of values, for example {key}=[{values!r}]")
    listed = [plain(key, value) for value in values]
    if not listed:
        raise UsageError(f"{key}: its list is empty: give a value, or leave {key} out")
    if len({repr(value) for value in listed}) < len(listed):
        raise UsageError(f"{key}: a value is in its list twice: each point is run once")
    return listed


def plain(key: str, value: object) -> Any:
    """A value as Python's own: a number of NumPy's is one of Python's."""
    item = getattr(value, "item", None)
    if callable(item) and getattr(value, "ndim", None) == 0:
        value = item()
    if isinstance(value, (list, tuple)):
        if any(isinstance(each, (list, tuple)) for each in value):
            raise UsageError(f"{key}: a list in a list is no value of an option: give one list")
        return [plain(key, each) for each in value]
    if isinstance(value, float) and not math.isfinite(value):
        raise UsageError(f"{key}: {value} is no value of an option")
    if value is None or isinstance(value, (bool, int, float, str)):
        return value
    raise TypeError(
        f"{key}: a {type(value).__name__} is no value of an option: give a number, a text, a "
        "bool, or a list of them"
    )


@dataclass
class Points:
    """All grids of a sweep: its points, and the knee where one is looked for."""

    points: list[Point]
    keys: list[str]
    knee: Knee | None


def points_of(grid: Grid) -> Points:
    """The points of a grid, in their order: of a product the last key changes fastest.

    A tuple is several grids, of which each point of one is run with each of the others.
    Raises :class:`ssdkit.UsageError` for one that is empty or contradicts itself.

    >>> points_of({"qd": [1, 2], "bs": ["4k", "8k"]}).points[1]
    {'qd': 1, 'bs': '8k'}
    """
    parts = list(grid) if isinstance(grid, tuple) else [grid]
    if not parts:
        raise UsageError("the grid is empty: give a key with a list of values")
    several = [_part(part) for part in parts]
    knees = [part for part in parts if isinstance(part, Knee)]
    if len(knees) > 1:
        raise UsageError("a sweep looks for one knee: take one Knee, and lists for other keys")
    keys: list[str] = []
    for part in several:
        for key in dict.fromkeys(key for point in part for key in point):
            if key in keys:
                raise UsageError(f"{key} is in two grids: leave it out of one")
            keys.append(key)
    if "drive" in keys and any(key.startswith("drive.") for key in keys):
        raise UsageError(
            "drive and keys of the drive are in the grid: give whole names, or their keys alone"
        )
    _few(several)
    combined: list[Point] = []
    for parts_ in itertools.product(*several):
        combined.append({key: value for part in parts_ for key, value in part.items()})
    return Points(combined, keys, knees[0] if knees else None)


def _few(lists: Iterable[Sequence[Any]]) -> None:
    """Refuses a product of too many, before any of it is made."""
    if math.prod(map(len, lists)) > MOST_POINTS:
        raise UsageError(
            f"the grid has more than {MOST_POINTS} points: give fewer values, or draw points by "
            "LatinHypercube or Sobol"
        )


def _part(grid: object) -> list[Point]:
    """The points of one grid."""
    if isinstance(grid, _Sampler):
        return grid.points()
    if isinstance(grid, Knee):
        return [{key_of(grid.key): value for value in point.values()} for point in grid.first()]
    if isinstance(grid, Mapping):
        if not grid:
            raise UsageError("the grid is empty: give a key with a list of values")
        lists = _by_key(grid, _values)
        _few(lists.values())
        return [
            dict(zip(lists, values, strict=True)) for values in itertools.product(*lists.values())
        ]
    if isinstance(grid, Sequence) and not isinstance(grid, str):
        if not grid:
            raise UsageError("the list of points is empty: give a point, for example {'qd': 4}")
        points: list[Point] = []
        for n, point in enumerate(grid):
            if not isinstance(point, Mapping):
                raise UsageError(f"point {n} of the list is {point!r}: a point is a dict by key")
            points.append(_by_key(point, plain))
        if len({repr(sorted(point.items())) for point in points}) < len(points):
            raise UsageError("a point is in the list twice: each is run once")
        return points
    raise TypeError(
        f"a {type(grid).__name__} is no grid: give a dict of lists, a list of dicts, a sampler, "
        "a Knee, or a tuple of these"
    )
