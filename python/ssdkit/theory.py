"""What theory says of a drive."""

from __future__ import annotations

from ssdkit import _core
from ssdkit._core import UsageError
from ssdkit._numbers import U32, real, whole


def formula(victim: str, spare: float, pages: int = 256) -> float:
    """Write amplification of uniform random overwrites in the steady state.

    `victim` is how chunks to collect are chosen: greedy, fifo or random. `spare` is
    (T - U) / T, T the physical and U the logical blocks, above 0 and below 1. `pages` are
    the blocks of a chunk, which matter to greedy alone (Desnoyers 2012, "Analytic Modeling of
    SSD Write Performance"). Raises ValueError for what is not, TypeError for what is no number.

    >>> round(formula("greedy", 0.07, pages=64), 2), round(formula("random", 0.2), 2)
    (6.6, 5.0)
    >>> formula("greedy", 1.5)
    Traceback (most recent call last):
    ValueError: spare is 1.5: take a part above 0 and below 1
    """
    try:
        spare = real("spare", spare, "a part above 0 and below 1", lambda part: 0 < part < 1)
        pages = whole("pages", pages, 1, U32)
    except UsageError as e:
        raise ValueError(str(e)) from None
    return _core.formula(victim, spare, pages)
