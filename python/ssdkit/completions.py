"""What became of requests."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt

from ssdkit import _core
from ssdkit._core import Error, UsageError

__all__ = ["Completions"]

Unsigned: TypeAlias = npt.NDArray[np.uint64]


class Completions:
    """What became of requests, in the order in which they completed.

    All columns have a value for each request. They are arrays over memory of their own.
    """

    id: Unsigned
    """The numbers that `submit` gave."""
    submitted: Unsigned
    """When each started, in ns of drive time: its `at`, or when there was room for it."""
    completed: Unsigned
    """When each completed, in ns of drive time."""
    code: npt.NDArray[np.uint16]
    """The NVMe status of each, as a number; `status` has it in words."""
    stories: Mapping[str, Unsigned]
    """Where the time of each went: by part, ns. Empty unless the drive tells stories."""

    def __init__(self, columns: Mapping[str, Any]) -> None:
        self.id = columns["id"]
        self.submitted = columns["submitted"]
        self.completed = columns["completed"]
        self.code = columns["code"]
        self.stories = columns.get("stories", {})
        self._data: npt.NDArray[np.uint8] | None = columns.get("data")
        self._bounds: Unsigned | None = columns.get("bounds")

    def __len__(self) -> int:
        return len(self.id)

    def __repr__(self) -> str:
        failed = int(np.count_nonzero(self.code))
        return f"<Completions of {len(self)} requests, {failed} failed>"

    @property
    def latency(self) -> Unsigned:
        """How long each took, in ns."""
        return self.completed - self.submitted

    @property
    def ok(self) -> npt.NDArray[np.bool_]:
        """Whether each did what it was asked."""
        return np.equal(self.code, 0)

    @property
    def status(self) -> npt.NDArray[np.str_]:
        """How each ended, in words: "success", "unrecovered read error", "aborted" and so on."""
        codes, where = np.unique(self.code, return_inverse=True)
        return np.array([_core.status_name(int(code)) for code in codes], dtype=np.str_)[where]

    @property
    def data(self) -> npt.NDArray[np.uint8]:
        """What was read, one after the other, of requests whose data was to be kept. One that
        failed read nothing."""
        return np.empty(0, np.uint8) if self._data is None else self._data

    def data_of(self, row: int) -> npt.NDArray[np.uint8]:
        """What the request of a row read; no bytes where it kept none, or failed."""
        row = range(len(self))[row]
        if self._bounds is None:
            return self.data[:0]
        return self.data[int(self._bounds[row]) : int(self._bounds[row + 1])]

    def by_id(self) -> npt.NDArray[np.intp]:
        """The rows in the order of the requests' numbers: `c.latency[c.by_id()]`."""
        return np.argsort(self.id, kind="stable")


def compare(
    done: Completions, first: int, reads: npt.NDArray[np.bool_], expected: npt.NDArray[np.uint8]
) -> None:
    """Raises `Error` where requests from `first` on, of which these are reads, read something
    else than was expected, or failed."""
    rows = [row for row in done.by_id().tolist() if done.id[row] >= first]
    at = 0
    for row in rows:
        if done.code[row] and reads[int(done.id[row]) - first]:
            status = _core.status_name(int(done.code[row]))
            raise Error(f"request {done.id[row]} read nothing: {status}")
        read = done.data_of(row)
        wanted = expected[at : at + len(read)]
        at += len(read)
        if not np.array_equal(read, wanted):
            same = read[: len(wanted)] == wanted
            byte = int(np.argmin(same)) if not same.all() else len(wanted)
            raise Error(
                f"request {done.id[row]} read other bytes than were expected, from its byte "
                f"{byte} on"
            )
    if at != len(expected):
        raise UsageError(f"the reads gave {at} bytes, and {len(expected)} were expected")
