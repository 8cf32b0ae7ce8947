"""One drive of a fleet: what is drawn for it, and the life that it lives.

The drive is a real one of ours, small and fast-lived: each of its erases stands for so many
of the real drive's (``acceleration``), so that its endurance is as much smaller and its
failures of programs and erases as much likelier. A chunk with fewer pages than its profile's has
fewer programs that may fail between two erases: each fails as much more often. Its data are written at the rate of the real
drive's and are as old as that one's; so its drive time is as much shorter than the
calendar's. Nothing of wear, retention, refresh and failure is computed here.
"""

from __future__ import annotations

import hashlib
import json
import math
import random
import re
import time
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from statistics import NormalDist
from typing import Any

import ssdkit
from ssdkit import _core
from ssdkit._core import Error, UsageError
from ssdkit._numbers import U64, real, said
from ssdkit.sweep_extra import build, optional
from ssdkit.sweep_run import (
    WorkerVersionError,
    as_dict,
    drive_with,
    files_of,
    myself,
)

#: Seconds in which no charge is lost: 31 years.
NEVER = 10**9
#: Seconds of a year and a day.
YEAR, DAY = 365.25 * 86400.0, 86400.0
#: Drive time is counted in 64 bits of ns, which is 584 years.
LONGEST = 500 * YEAR
#: Boltzmann's constant in eV/K, the activation energy of charge loss (JESD22-A117) in eV,
#: and the temperature in degrees Celsius that a profile's retention time is of.
BOLTZMANN, ACTIVATION, RATED = 8.617e-5, 1.1, 40.0

_UNITS = {
    "ns": 1e-9,
    "us": 1e-6,
    "ms": 1e-3,
    "s": 1.0,
    "m": 60.0,
    "min": 60.0,
    "h": 3600.0,
    "d": DAY,
}


@dataclass(frozen=True)
class Normal:
    """Normally distributed around ``mean``; what is further than three ``deviation`` is drawn
    at three."""

    mean: float
    deviation: float

    def __post_init__(self) -> None:
        _check(self, self.mean, self.deviation)

    def at(self, share: float) -> float:
        """The value below which a share, above 0 and below 1, of all lie."""
        return self.mean + self.deviation * _normal(share)


@dataclass(frozen=True)
class LogNormal:
    """The logarithm is normally distributed: half of all are below ``median``, two of three
    within a factor of exp(``sigma``); what is further than three sigma is drawn at three.

    >>> LogNormal(0.5, 0.7).at(0.5)
    0.5
    """

    median: float
    sigma: float

    def __post_init__(self) -> None:
        _check(self, self.median, self.sigma)
        if self.median <= 0:
            raise UsageError(f"{self}: its median is above 0")
        if self.sigma > 100:
            raise UsageError(f"{self}: its sigma is 100 at most")

    def at(self, share: float) -> float:
        """The value below which a share, above 0 and below 1, of all lie."""
        return self.median * math.exp(self.sigma * _normal(share))


def _check(of: object, *values: float) -> None:
    for value in values:
        real(type(of).__name__, value, "finite numbers, and a spread of 0 or more", lambda _: True)
    if values[-1] < 0:
        raise UsageError(f"{of}: it takes finite numbers, and a spread of 0 or more")


def _normal(share: float) -> float:
    share = min(max(share, 1e-12), 1 - 1e-12)
    return min(max(NormalDist().inv_cdf(share), -3.0), 3.0)


Drawn = float | Normal | LogNormal


@dataclass(frozen=True)
class Kind:
    """What all drives of a fleet have in common."""

    drive: str
    years: float
    seed: int
    writes: Drawn
    errors: Drawn
    temperature: Drawn
    workloads: dict[str, tuple[float, dict[str, Any]]]
    acceleration: float
    windows: int
    bursts: int
    #: Of the effective profile: endurance, rates, retention in seconds, and the drive's bytes;
    #: and how many programs a chunk of the profile takes for one of the drive's.
    profile: dict[str, float]


@dataclass(frozen=True)
class Life:
    """A drive of a fleet: what was drawn, and what it is asked to do."""

    number: int
    drawn: dict[str, Any]
    drive: str
    course: dict[str, float]
    options: dict[str, Any]
    key: str


def profile_of(drive: str) -> dict[str, float]:
    """What a drive's errors and size are, as the drive itself tells."""
    report = as_dict(ssdkit.bench(drive, rw="read", ios=1, precondition="none"))
    told = report["drive"]
    profile = told.get("profile", {})
    errors, endurance = profile.get("reliability", {}), profile.get("timing", {}).get("endurance")
    if not isinstance(endurance, int) or not errors.get("rber_base"):
        raise UsageError(
            f"{drive}: its profile has no errors, or flash that never wears out: take tlc, for example"
        )
    whole = ssdkit.profile(drive.partition(",")[0])["geometry"]
    numbers = ("rber_base", "rber_wear", "program_failure", "erase_failure")
    return {
        **{name: float(errors[name]) for name in numbers},
        "retention_time": _seconds(errors["retention_time"]),
        "endurance": float(endurance),
        "bytes": float(told["size_bytes"]),
        "programs": _programs(whole) / _programs(profile["geometry"]),
    }


def _programs(geometry: Mapping[str, Any]) -> float:
    """Programs that fill a chunk, of each plane at once."""
    return float(geometry["pages"]) / float(geometry["pages_at_once"])


def _seconds(text: str) -> float:
    found = re.fullmatch(r"([0-9.]+)([a-z]+)", text)
    if found is None or found[2] not in _UNITS:
        raise Error(f"{text}: no time is told there")
    return float(found[1]) * _UNITS[found[2]]


def life_of(kind: Kind, number: int) -> Life:
    """What is drawn for a drive. It follows from the fleet's seed and the drive's number, so
    that a larger fleet has the same drives and more."""
    dice = random.Random(f"{kind.seed}/{number}")
    drawn: dict[str, Any] = {
        name: _draw(getattr(kind, name), dice.random())
        for name in ("writes", "errors", "temperature")
    }
    names = list(kind.workloads)
    weights = [kind.workloads[name][0] for name in names]
    drawn["workload"] = dice.choices(names, weights)[0]
    options = dict(kind.workloads[drawn["workload"]][1])
    keys, course = _aged(kind, drawn, options)
    options["seed"] = dice.getrandbits(32)
    drive = drive_with(kind.drive, keys)
    told = [drive, course, options, files_of(drive), build()]
    text = json.dumps(told, sort_keys=True, default=str)
    key = hashlib.sha256(text.encode()).hexdigest()[:32]
    return Life(number, drawn, drive, course, options, key)


def _draw(of: Drawn, share: float) -> float:
    return float(f"{of if isinstance(of, (int, float)) else of.at(share):.9g}")


def _aged(
    kind: Kind, drawn: Mapping[str, Any], options: Mapping[str, Any]
) -> tuple[dict[str, Any], dict[str, float]]:
    """The keys of a drive that lives so many times faster, and the course of its life."""
    profile, fast = kind.profile, kind.acceleration
    endurance = max(round(profile["endurance"] / fast), 1)
    # What the rounding did to it.
    fast = profile["endurance"] / endurance
    kelvin = drawn["temperature"] + 273.15
    faster = math.exp(ACTIVATION / BOLTZMANN * (1 / (RATED + 273.15) - 1 / kelvin))
    keys = {
        "errors": True,
        "endurance": endurance,
        "program_failure": _short(
            min(profile["program_failure"] * fast * profile["programs"], 1.0)
        ),
        "erase_failure": _short(min(profile["erase_failure"] * fast, 1.0)),
        "rber_base": _short(min(profile["rber_base"] * drawn["errors"], 0.5)),
        "rber_wear": _short(min(profile["rber_wear"] * drawn["errors"], 0.5)),
        "retention_time": f"{min(max(round(profile['retention_time'] / faster), 1), NEVER)}s",
    }
    bursts = kind.windows * kind.bursts
    seconds = kind.years * YEAR / fast
    if seconds > LONGEST:
        raise UsageError(
            f"years is {kind.years}, of which the drives live {seconds / YEAR:.0f} in their own "
            "time, and at most 500 can be counted: take fewer years, or more acceleration"
        )
    writes = drawn["writes"] * seconds / DAY * profile["bytes"] / block_bytes(options)
    requests = max(writes / write_share(options) / bursts, 1.0)
    if not requests < U64:
        raise UsageError(f"writes is {drawn['writes']}: so many requests cannot be counted")
    rest = seconds / bursts
    course = {
        "windows": kind.windows,
        "bursts": kind.bursts,
        "requests": round(requests),
        "rest": _short(rest),
        # As often as the patrol has a round to do, but no rest is looked into more than
        # sixteen times.
        "tend": _short(max(profile["retention_time"] / faster / 64, rest / 16)),
    }
    return keys, course


def _short(value: float) -> float:
    return float(f"{value:.9g}")


def block_bytes(options: Mapping[str, Any]) -> int:
    """Bytes of a request."""
    text = str(options.get("bs", "4k")).lower().removesuffix("ib").removesuffix("b")
    found = re.fullmatch(r"([0-9]+)([km]?)", text)
    if found is None or int(found[1]) == 0:
        raise UsageError(f"bs={said(options.get('bs'))}: a size as 4k is needed")
    return int(found[1]) * {"": 1, "k": 1024, "m": 1 << 20}[found[2]]


def write_share(options: Mapping[str, Any]) -> float:
    """The share of writes among requests; some are needed, as a drive that is not written
    does not wear."""
    rw = str(options.get("rw", ""))
    share = 1.0 if rw in ("write", "randwrite") else 0.0
    if rw in ("rw", "randrw"):
        percent = real(
            "read_percent", options.get("read_percent", 50), "0 to 100", lambda p: 0 <= p <= 100
        )
        share = 1 - percent / 100
    if share <= 0:
        raise UsageError(f"rw={rw}: a drive of a fleet is written: take randrw, for example")
    return share


#: A window's columns that are the drive's own words, and whether they are whole numbers.
TOLD: dict[str, type] = {
    "failed_requests": int,
    "user_blocks": int,
    "lost_blocks": int,
    "erases": int,
    "refreshed_chunks": int,
    "write_amplification": float,
    "chunks": int,
    "factory_bad": int,
    "grown_bad": int,
    "retired": int,
    "wear_mean": float,
    "wear_most": int,
}
#: What its flash got wrong.
WRONG = ("corrected_reads", "retried_reads", "retries", "failed_reads", "failed_blocks")
#: Of its latencies, in ns.
LATENCIES = ("mean", "p50", "p99", "p999", "max")


@cache
def windows_schema() -> Any:
    """The columns of the windows of drives' lives."""
    pa = optional("pyarrow", "sweep")
    kinds = {int: pa.int64(), float: pa.float64()}
    columns = [("key", pa.string()), ("window", pa.int32()), ("years", pa.float64())]
    columns += [("error", pa.string()), ("worn", pa.bool_()), ("lost_years", pa.float64())]
    columns += [(name, kinds[kind]) for name, kind in TOLD.items()]
    columns += [(f"flash_{name}", pa.int64()) for name in WRONG]
    for of in ("read", "write"):
        columns += [(f"{of}s", pa.int64())]
        columns += [
            (f"{of}_latency_{name}_ns", pa.float64() if name == "mean" else pa.int64())
            for name in LATENCIES
        ]
        columns += [(f"{of}_below_ns", pa.list_(pa.int64())), (f"{of}_count", pa.list_(pa.int64()))]
    return pa.schema(columns)


def rows_of(life: Life, windows: list[dict[str, Any]], years: float) -> list[dict[str, Any]]:
    """The rows of a life; times are those of the calendar, in years."""
    span = life.course["rest"] * life.course["windows"] * life.course["bursts"]
    rows = []
    for n, window in enumerate(windows):
        wrong = window["flash_errors"] or {}
        row: dict[str, Any] = {
            "key": life.key,
            "window": n,
            "years": window["seconds"] / span * years,
            "error": None,
            "worn": window["read_only"],
            "lost_years": _scaled(window["lost_seconds"], years / span),
            **{name: window[name] for name in TOLD},
            **{f"flash_{name}": wrong.get(name, 0) for name in WRONG},
        }
        for of in ("read", "write"):
            told = window[of]
            row[f"{of}s"] = told["n"]
            row |= {f"{of}_latency_{name}_ns": told[name] for name in LATENCIES}
            row[f"{of}_below_ns"] = told["distribution"]["below_ns"]
            row[f"{of}_count"] = told["distribution"]["n"]
        rows.append(row)
    return rows


def _scaled(value: float | None, by: float) -> float | None:
    return None if value is None else value * by


@dataclass
class Lived:
    """What became of a drive."""

    rows: list[dict[str, Any]]
    error: str | None
    lasting: bool
    seconds: float
    worker: str


def live(life: Life, years: float, expected: str) -> Lived:
    """Lives a life on this machine."""
    if (mine := build()) != expected:
        raise WorkerVersionError(myself(), mine, expected)
    began = time.perf_counter()
    error, lasting = None, True
    rows: list[dict[str, Any]] = []
    try:
        course: dict[str, Any] = life.course
        rows = rows_of(life, _core.life(life.drive, **course, **life.options), years)
    except Error as e:
        error = str(e)
    except (MemoryError, OSError) as e:
        error, lasting = f"{type(e).__name__}: {e}", False
    if error is not None:
        rows = [{"key": life.key, "window": 0, "years": 0.0, "error": error}]
    return Lived(rows, error, lasting, time.perf_counter() - began, myself())
