"""The native half of the package."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any, final

import numpy as np
from numpy.typing import NDArray

from ssdkit.explanation import Explanation
from ssdkit.report import Report

__version__: str

class Error(Exception):
    """What ssdkit could not do, and what to do about it."""

    report: Any

class UsageError(Error):
    """It was asked for something that cannot be."""

class DriveError(UsageError):
    """No such drive can be."""

@final
class Outcome:
    """What a run gave."""

    def to_dict(self) -> dict[str, Any]: ...
    def to_json(self) -> str: ...
    def text(self, columns: int) -> str: ...
    def histogram(self, kind: str) -> tuple[NDArray[np.uint64], NDArray[np.uint64]]: ...
    def series(self) -> dict[str, NDArray[Any]]: ...

def bench(
    drive: str,
    options: Mapping[str, Any],
    pictures: bool = False,
    progress: Callable[[str, float], object] | None = None,
) -> Report: ...
def explain(
    drive: str,
    options: Mapping[str, Any],
    pictures: bool = False,
    progress: Callable[[str, float], object] | None = None,
) -> Explanation: ...
def replay(
    trace: str,
    drive: str,
    options: Mapping[str, Any],
    pictures: bool = False,
    progress: Callable[[str, float], object] | None = None,
) -> Report | Explanation: ...
def command(
    name: str,
    operands: Sequence[str],
    options: Mapping[str, Any],
    progress: Callable[[str, float], object] | None = None,
) -> Any: ...
def compare(reports: Sequence[tuple[str, str]]) -> tuple[dict[str, Any], str, str]: ...
def in_words(kind: str, figure: float) -> str: ...
def formula(victim: str, spare: float, pages: int) -> float: ...
def check(drive: str, trace: str | None = None, **options: Any) -> str: ...
def life(
    drive: str,
    *,
    windows: int,
    bursts: int,
    requests: int,
    rest: float,
    tend: float,
    **options: Any,
) -> list[dict[str, Any]]: ...
