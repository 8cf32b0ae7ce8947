"""Latencies and how often each was."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from ssdkit.table import Table


@dataclass(frozen=True, slots=True, eq=False)
class Histogram:
    """How often latencies were, each within 0.4 % (below 128 ns exact).

    >>> import numpy as np
    >>> few = Histogram(np.array([10, 20], np.uint64), np.array([3, 1], np.uint64), 20)
    >>> few.count, few.percentile(50), few.percentile(99)
    (4, 10, 20)
    """

    #: Latencies in ns, rising.
    ns: NDArray[np.uint64]
    #: How many requests took so long.
    n: NDArray[np.uint64]
    #: The longest of all in ns, exact; 0 of none.
    max: int

    @property
    def count(self) -> int:
        """How many requests there are."""
        return int(self.n.sum())

    def percentile(self, p: float) -> int | None:
        """What `p` percent of the requests did not exceed, in ns; None of no requests.

        It says nothing about whether there are enough of them to mean something.
        Raises ValueError where `p` is not between 0 and 100.
        """
        if not 0 <= p <= 100:
            raise ValueError(f"{p} is no percentile: it is 0 to 100")
        count = self.count
        if count == 0:
            return None
        rank = min(max(math.ceil(p / 100 * count * (1 - 1e-12)), 1), count)
        if rank == count:
            return self.max
        return int(self.ns[np.searchsorted(np.cumsum(self.n), rank)])

    def table(self) -> Table:
        """Its columns, `ns` and `n`."""
        return Table({"ns": self.ns, "n": self.n})
