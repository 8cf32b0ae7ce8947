"""Why requests took what they took, and what would change it."""

from __future__ import annotations

from collections.abc import Iterable
from html import escape

from ssdkit.report import Report
from ssdkit.table import Table


class Explanation:
    """A run of which each request told where its time went, and runs that differ from it.

    >>> import ssdkit
    >>> why = ssdkit.explain(
    ...     "mem:tlc,size=256M", rw="randrw", qd=8, precondition="seq", ios=20_000,
    ...     what_if=["suspend=true"],
    ... )
    >>> list(why.what_if)
    ['suspend=true']
    >>> why.what_if["suspend=true"].reads.latency.p99 < why.report.reads.latency.p99
    True
    """

    #: The run as it is.
    report: Report
    #: By key and value, as they were asked for, the run of a drive that differs in that.
    what_if: dict[str, Report]

    def __init__(
        self, report: Report, others: Iterable[tuple[str, Report]], text: str, compared: str
    ) -> None:
        self.report = report
        self.what_if = dict(others)
        self._text, self._compared = text, compared

    @property
    def causes(self) -> Table:
        """Where the time of requests went; see `Report.causes`."""
        return self.report.causes

    def __str__(self) -> str:
        return (self._text + self._compared).rstrip("\n")

    __repr__ = __str__

    def _repr_html_(self) -> str:
        return f"<pre>{escape(str(self))}</pre>"
