"""What is told of a fleet from the lives of its drives: survival, rebuilds, striped reads.

Plain NumPy. Times are in years, latencies in ns.
"""

from __future__ import annotations

from collections.abc import Sequence
from statistics import NormalDist
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ssdkit._core import UsageError
from ssdkit._numbers import real, whole

Floats = NDArray[np.float64]

#: Drives of a group, and groups, at most.
MOST = 1_000_000
#: Reads beyond a percentile from which it is told, as of any run.
FEWEST = 10
#: Drives of like load that one is drawn of to replace another.
ALIKE = 5


def kaplan_meier(
    years: Sequence[float] | Floats,
    failed: Sequence[bool] | NDArray[np.bool_],
    confidence: float = 0.95,
) -> dict[str, Any]:
    """The share of drives that live on after each failure, by Kaplan and Meier, with the
    interval of Greenwood's variance on the scale log(-log S).

    Where none or all have failed that scale tells nothing. Before the first failure the
    interval is that of Clopper and Pearson for no failure among the drives that were seen as
    long as that row holds; where none is left, it goes up to where it did before, or to that of
    Clopper and Pearson where all failed at once. Of no drives all are NaN.

    ``years`` is when each drive failed, or was last seen; ``failed`` which of both.

    >>> curve = kaplan_meier([1.0, 2.0, 3.0, 4.0], [True, False, True, False])
    >>> [float(share) for share in curve["survival"]]
    [1.0, 0.75, 0.375]
    >>> float(kaplan_meier([5.0] * 1000, [False] * 1000)["lower"][0].round(4))
    0.9963
    """
    if not 0 < confidence < 1:
        raise UsageError(f"confidence is {confidence}: take a share, as 0.95")
    times, events = np.asarray(years, float), np.asarray(failed, bool)
    at = np.unique(times[events])
    risk = np.array([(times >= t).sum() for t in at], float)
    died = np.array([(events & (times == t)).sum() for t in at], float)
    survival = np.cumprod(1 - died / risk) if len(at) else np.array([])
    with np.errstate(divide="ignore", invalid="ignore"):
        variance = np.cumsum(died / (risk * (risk - died)))
        spread = (
            NormalDist().inv_cdf(0.5 + confidence / 2)
            * np.sqrt(variance)
            / np.abs(np.log(survival))
        )
        lower, upper = survival ** np.exp(spread), survival ** np.exp(-spread)
    seen = int((times >= (at[0] if len(at) else times.max(initial=0.0))).sum())
    # Of so many drives none fails, or all do, with this chance at most.
    least = ((1 - confidence) / 2) ** (1 / seen) if seen else np.nan
    if len(at) and survival[-1] == 0:
        lower[-1], upper[-1] = 0.0, upper[-2] if len(at) > 1 else 1 - least
    first = np.array([1.0 if seen else np.nan])
    return {
        "years": np.concatenate([[0.0], at]),
        "at_risk": np.concatenate([[float(len(times))], risk]).astype(np.int64),
        "failures": np.concatenate([[0.0], died]).astype(np.int64),
        "survival": np.concatenate([first, survival]),
        "lower": np.concatenate([[least], lower]),
        "upper": np.concatenate([first, upper]),
    }


def failures_with_replacements(
    lives: Floats,
    failed: NDArray[np.bool_],
    years: float,
    seed: int,
    *,
    writes: Floats,
    workloads: Sequence[str],
) -> Floats:
    """When drives fail in a fleet where each that fails is replaced at once by a new one in its
    place: times over the years, sorted.

    A place keeps its load: what replaces a drive has the life of one of the ``ALIKE`` drives
    whose ``writes`` are nearest among those of its workload, that drive among them, drawn by the
    seed. A drawn life that ended without failure lasts to the end. Raises UsageError for a life
    of no length."""
    lives = np.asarray(lives, float)
    if (lives[np.asarray(failed, bool)] <= 0).any():
        raise UsageError("lives: one that ends with a failure is longer than 0 years")
    dice = np.random.Generator(np.random.PCG64(seed))
    order, first, upto = _alike(np.asarray(writes, float), workloads)
    times: list[float] = []
    for place, (life, ends) in enumerate(zip(lives, failed, strict=True)):
        at, dies = float(life), bool(ends)
        # What fails with the last burst fails at the end itself.
        while dies and at <= years:
            times.append(at)
            n = order[dice.integers(first[place], upto[place])]
            at, dies = at + float(lives[n]), bool(failed[n])
    return np.sort(np.array(times))


def _alike(
    writes: Floats, workloads: Sequence[str]
) -> tuple[NDArray[np.int64], NDArray[np.int64], NDArray[np.int64]]:
    """All drives by workload and writes, and for each drive where those begin and end in that
    order that have a load like its own: ``ALIKE`` of them, all that are as near, or all that
    there are."""
    kinds = np.unique(np.asarray(workloads, str), return_inverse=True)[1].reshape(-1)
    order = np.lexsort((writes, kinds))
    first, upto = np.zeros((2, len(writes)), np.int64)
    for begin, count in zip(*np.unique(kinds[order], return_index=True, return_counts=True)[1:]):
        drives = order[begin : begin + count]
        # Near is what differs by a small factor.
        near = np.log(writes[drives])
        most = min(ALIKE, count)
        here, best = np.arange(count), np.full(count, np.inf)
        start = np.zeros(count, np.int64)
        for before in range(most):
            at = np.clip(here - before, 0, count - most)
            width = np.maximum(near - near[at], near[at + most - 1] - near)
            start = np.where(width < best, at, start)
            best = np.minimum(width, best)
        first[drives] = begin + np.searchsorted(near, near[start], side="left")
        upto[drives] = begin + np.searchsorted(near, near[start + most - 1], side="right")
    return order, first, upto


def rebuild_load(
    failures: Floats,
    years: float,
    *,
    capacity: float,
    data: int,
    parity: int,
    rate: float,
    drives: int,
) -> dict[str, Any]:
    """What is to be rebuilt in each month, of a fleet in groups of ``data`` and ``parity``
    drives of ``capacity`` bytes: to rebuild one, ``data`` others are read and one is written,
    at ``rate`` bytes a second.

    ``failures`` are in order. ``degraded`` is the share of groups that are being rebuilt, on
    average over the month; ``most_at_once`` how many drives are at most, those among them whose
    rebuild began in a month before."""
    capacity = real("capacity", capacity, "bytes, above 0", lambda size: size > 0)
    rate = real("rate", rate, "bytes a second, above 0", lambda rate: rate > 0)
    data, parity = whole("data", data, 1, MOST), whole("parity", parity, 1, MOST)
    months = int(np.ceil(years * 12))
    month = np.minimum((failures * 12).astype(int), months - 1)
    count = np.bincount(month, minlength=months)[:months]
    seconds = capacity / rate
    span = seconds / (365.25 * 86400)
    groups = max(drives / (data + parity), 1.0)
    # Of rebuilds that begin in a month some go on in others.
    busy = np.zeros(months)
    for at in failures:
        # What failed with the last burst failed in the last month, and is rebuilt in it.
        first = at * 12 if at * 12 < months else max(months - span * 12, months - 1.0)
        last = first + span * 12
        for n in range(int(first), int(min(last, months - 1)) + 1):
            busy[n] += max(min(last, n + 1) - max(first, n), 0.0)
    # Most go on at once where a month begins, or where another begins in it.
    most = _going_on(np.arange(months) / 12, failures, span)
    for n, going_on in zip(month, _going_on(failures, failures, span), strict=True):
        most[n] = max(most[n], going_on)
    return {
        "month": np.arange(1, months + 1),
        "failures": count,
        "written_bytes": count * float(capacity),
        "read_bytes": count * float(capacity) * data,
        "degraded": np.minimum(busy / groups, 1.0),
        "most_at_once": most,
    }


def _going_on(when: Floats, failures: Floats, span: float) -> NDArray[np.int64]:
    """How many rebuilds go on at each of some times: begun then or before, and not over."""
    begun = np.searchsorted(failures, when, side="right")
    return np.asarray(begun - np.searchsorted(failures + span, when, side="right"), np.int64)


def shares_below(edges: NDArray[np.int64], below: Sequence[Any], counts: Sequence[Any]) -> Floats:
    """Of each drive the share of its requests below each edge, a row a drive, from its
    distribution. A latency counts as the end of its class, which is an eighth of a power of
    two wide."""
    rows = np.zeros((len(below), len(edges)))
    for n, (ends, count) in enumerate(zip(below, counts, strict=True)):
        total = np.cumsum(np.asarray(count, float))
        place = np.searchsorted(np.asarray(ends), edges, side="right") - 1
        rows[n] = np.where(place >= 0, total[np.maximum(place, 0)], 0.0) / max(total[-1], 1.0)
    return rows


def at_least(shares: Floats, k: int) -> Floats:
    """The chance that at least ``k`` of some drives are done below each edge, of a row of
    shares a drive: drives answer each on its own.

    >>> [float(chance) for chance in at_least(np.array([[0.5], [0.5]]), 2)]
    [0.25]
    """
    n, edges = shares.shape
    # The chance of so many that are done, drive by drive.
    done = np.zeros((n + 1, edges))
    done[0] = 1.0
    for share in shares:
        done[1:] = done[1:] * (1 - share) + done[:-1] * share
        done[0] *= 1 - share
    return np.asarray(done[k:].sum(axis=0))


def percentile(edges: NDArray[np.int64], chances: Floats, at: float) -> float:
    """The first edge below which so many percent are."""
    reached = np.nonzero(chances >= at / 100 - 1e-12)[0]
    return float(edges[reached[0]]) if len(reached) else float("nan")


def striped_reads(
    below: Sequence[Any],
    counts: Sequence[Any],
    *,
    k: int,
    n: int,
    at: Sequence[float],
    groups: int,
    seed: int,
) -> list[dict[str, float]]:
    """Percentiles of a read that asks ``n`` drives and has what it needs when ``k`` of them
    have answered, over ``groups`` groups of drives that are drawn, beside those of one drive.
    NaN where the drives' reads are too few: fewer than ten are beyond the latency of one drive
    that a percentile rests on."""
    k, n, groups = (
        whole(name, value, 1, MOST) for name, value in (("k", k), ("n", n), ("groups", groups))
    )
    at = [real("percentiles", p, "percents, 0 to 100", lambda p: 0 <= p <= 100) for p in at]
    if k > n:
        raise UsageError(f"k={k} of n={n}: a read waits for 1 to n of n drives")
    if n > len(below):
        raise UsageError(f"n={n}: only {len(below)} drives are alive")
    edges = np.unique(np.concatenate([np.asarray(ends, np.int64) for ends in below]))
    shares = shares_below(edges, below, counts)
    reads = sum(float(np.sum(count)) for count in counts)
    dice = np.random.Generator(np.random.PCG64(seed))
    drawn = [dice.choice(len(below), n, replace=False) for _ in range(groups)]
    striped = np.mean([at_least(shares[group], k) for group in drawn], axis=0)
    one = shares.mean(axis=0)
    return [
        {
            "percentile": float(p),
            "one_ns": _told(edges, one, p, reads * (1 - p / 100)),
            "striped_ns": _told(edges, striped, p, reads * _beyond(p / 100, k, n)),
        }
        for p in at
    ]


def _told(edges: NDArray[np.int64], chances: Floats, at: float, beyond: float) -> float:
    """A percentile, or NaN where too few reads are beyond what it rests on."""
    return percentile(edges, chances, at) if beyond > FEWEST - 1e-6 else float("nan")


def _beyond(share: float, k: int, n: int) -> float:
    """The share of one drive's reads that are beyond a latency below which this share of reads
    has ``k`` of ``n`` answers, of drives that are alike."""
    least, most = 0.0, 1.0
    # Halved until it is as exact as it can be.
    for _ in range(60):
        middle = (least + most) / 2
        done = at_least(np.full((n, 1), 1 - middle), k)[0]
        least, most = (middle, most) if done > share else (least, middle)
    return least
