"""What theory says of a drive."""

from __future__ import annotations

from ssdkit import _core


def formula(victim: str, spare: float, pages: int = 256) -> float:
    """Write amplification of uniform random overwrites in the steady state.

    `victim` is how chunks to collect are chosen: greedy, fifo or random. `spare` is
    (T - U) / T, T the physical and U the logical blocks, above 0 and below 1. `pages` are
    the blocks of a chunk, which matter to greedy alone (Desnoyers 2012, "Analytic Modeling of
    SSD Write Performance"). Raises ValueError for what is not.

    >>> round(formula("greedy", 0.07, pages=64), 2), round(formula("random", 0.2), 2)
    (6.6, 5.0)
    >>> formula("greedy", 1.5)
    Traceback (most recent call last):
    ValueError: a spare is above 0 and below 1, and a chunk has pages
    """
    return _core.formula(victim, spare, pages)
