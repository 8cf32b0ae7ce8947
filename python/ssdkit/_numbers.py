"""Numbers that callers give: of the right kind, and within their range."""

from __future__ import annotations

import math
import operator
from collections.abc import Callable
from typing import Any

from ssdkit._core import UsageError

#: The largest numbers that the native half takes.
U32, U64 = (1 << 32) - 1, (1 << 64) - 1
#: The last ns of drive time.
LATEST = (1 << 63) - 1


def whole(name: str, value: Any, least: int, most: int) -> int:
    """A whole number of an option. Raises TypeError for what is none, UsageError beyond its
    range.

    >>> whole("qd", 0, 1, 65536)
    Traceback (most recent call last):
    ssdkit.UsageError: qd: 0 cannot be: 1 to 65536
    """
    # A truth value is a number for Python, and hardly meant as one.
    if isinstance(value, bool) or not hasattr(value, "__index__"):
        raise TypeError(f"{name}: a whole number is wanted, not {type(value).__name__}")
    try:
        value = operator.index(value)
    except TypeError:
        # An array has an index, and may be none.
        raise TypeError(f"{name}: a whole number is wanted, not {said(value)}") from None
    if not least <= value <= most:
        raise UsageError(f"{name}: {said(value)} cannot be: {least} to {most}")
    number: int = value
    return number


def real(name: str, value: Any, wanted: str, fits: Callable[[float], bool]) -> float:
    """A finite number of an option. Raises TypeError for what is none, UsageError for one
    that does not fit.

    >>> real("years", -1, "more than 0", lambda years: years > 0)
    Traceback (most recent call last):
    ssdkit.UsageError: years is -1: take more than 0
    """
    if isinstance(value, (str, bytes, bool)) or not hasattr(value, "__float__"):
        raise TypeError(f"{name}: a number is wanted, not {type(value).__name__}")
    try:
        number = float(value)
    except OverflowError:
        number = math.inf
    if not (math.isfinite(number) and fits(number)):
        raise UsageError(f"{name} is {said(value)}: take {wanted}")
    return number


def said(value: object) -> str:
    """A value in a message, however long it is."""
    try:
        text = " ".join(repr(value).split())
    except Exception:  # noqa: BLE001  (it may be anybody's)
        # Python writes no number of more than some thousand digits, for example.
        return f"a {type(value).__name__} that cannot be written"
    return text if len(text) <= 60 else f"{text[:57]}..."
