"""Numbers out of their range are told by their names, with the range."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import ssdkit
from ssdkit import Drive, KeyValue, LatinHypercube, LogNormal, Normal, Range, Sobol, UsageError

SMALL = "mem:null,size=16M"
NOBODY = "tcp://127.0.0.1:1"

#: Of each number a caller gives: what takes it.
WHOLE: dict[str, Callable[[Any], object]] = {
    "seed": lambda n: Drive(SMALL, seed=n),
    "qd": lambda n: Drive(SMALL, qd=n),
    "qd ": lambda n: setattr(Drive(SMALL), "qd", n),
    "qd  ": lambda n: Drive(SMALL).run("read", 0, qd=n),
    "to": lambda n: Drive(SMALL).advance(to=n),
    "completions": lambda n: Drive(SMALL).advance(completions=n),
    "offset": lambda n: Drive(SMALL).submit("read", n),
    "length": lambda n: Drive(SMALL).submit("read", 0, [n]),
    "at": lambda n: Drive(SMALL).submit("read", 0, at=n),
    "placement": lambda n: Drive(SMALL).submit("read", 0, placement=n),
    "seed ": lambda n: KeyValue("mem:tlc,size=64M", seed=n),
    "memory": lambda n: KeyValue("mem:tlc,size=64M", memory=n),
    "count": lambda n: KeyValue("mem:tlc,size=64M").scan(b"", n),
    "pages": lambda n: ssdkit.formula("greedy", 0.1, n),
    "workers": lambda n: ssdkit.sweep(SMALL, {"qd": [1]}, workers=n),
    "n of Sobol": lambda n: Sobol(n, {"qd": (1, 2)}),
    "seed of LatinHypercube": lambda n: LatinHypercube(2, {"qd": (1, 2)}, seed=n),
    "points of the knee": lambda n: ssdkit.Knee("qd", Range(1, 9), "iops", points=n),
    "drives": lambda n: ssdkit.fleet(n, scheduler=NOBODY),
    "windows": lambda n: ssdkit.fleet(2, windows=n, scheduler=NOBODY),
    "bursts": lambda n: ssdkit.fleet(2, bursts=n, scheduler=NOBODY),
    "seed  ": lambda n: ssdkit.fleet(2, seed=n, scheduler=NOBODY),
}


@pytest.mark.parametrize("name", WHOLE)
def test_whole_numbers_out_of_range_are_told_with_it(name: str) -> None:
    for wrong in (-1, -(2**70), 2**64, 10**400, 10**5000, np.int64(-1)):
        with pytest.raises(
            (UsageError, ValueError), match=rf"{name.strip()}.* cannot be: \d+ to \d"
        ):
            WHOLE[name](wrong)
    others: list[Any] = [float("nan"), 1.5, "many", [[]], object(), True, np.zeros((2, 2), int)]
    for nothing in others:
        with pytest.raises((TypeError, UsageError), match=name.strip()):
            WHOLE[name](nothing)


#: The same of numbers that need not be whole.
REAL: dict[str, Callable[[Any], object]] = {
    "spare": lambda x: ssdkit.formula("greedy", x),
    "connect_timeout": lambda x: ssdkit.sweep(SMALL, {"qd": [1]}, connect_timeout=x),
    "range": lambda x: Range(1, x),
    "years": lambda x: ssdkit.fleet(2, years=x, scheduler=NOBODY),
    "acceleration": lambda x: ssdkit.fleet(2, acceleration=x, scheduler=NOBODY),
    "writes": lambda x: ssdkit.fleet(2, writes=x, scheduler=NOBODY),
    "errors": lambda x: ssdkit.fleet(2, errors=x, scheduler=NOBODY),
    "temperature": lambda x: ssdkit.fleet(2, temperature=x, scheduler=NOBODY),
    "Normal": lambda x: Normal(x, 1),
    "LogNormal": lambda x: LogNormal(1, x),
}


@pytest.mark.parametrize("name", REAL)
def test_numbers_out_of_range_are_told(name: str) -> None:
    for wrong in (float("nan"), float("inf"), float("-inf"), 10**400, -(10**5000)):
        with pytest.raises((UsageError, ValueError), match=name):
            REAL[name](wrong)
    others: list[Any] = ["many", [[]], True]
    for nothing in others:
        with pytest.raises(TypeError, match=name):
            REAL[name](nothing)


@pytest.mark.parametrize(
    ("options", "says"),
    [
        ({"temperature": -270}, "temperature is -270: all that may be drawn are -55 to 150"),
        ({"temperature": Normal(140, 20)}, "all that may be drawn are -55 to 150 degrees"),
        ({"writes": 1e30}, "writes is 1e\\+30: all that may be drawn are above 0, up to 10000"),
        ({"years": 1e9}, "years is .*: take more than 0, up to 1000"),
    ],
)
def test_fleets_that_cannot_be_counted_are_refused(options: Any, says: str) -> None:
    with pytest.raises(UsageError, match=says):
        ssdkit.fleet(2, scheduler=NOBODY, **options)
    with pytest.raises(UsageError, match="its sigma is 100 at most"):
        LogNormal(1, 1000)


def test_numbers_of_other_kinds_are_numbers() -> None:
    numbers: Any = np.uint64(2**64 - 1), np.int8(4), np.int32(2), np.int64(64), np.float32(0.25)
    most, four, two, pages, part = numbers
    drive = Drive(SMALL, seed=most, qd=four)
    assert drive.qd == 4 and len(drive.run("read", 0, qd=two)) == 1
    assert ssdkit.formula("greedy", part, pages) > 1
