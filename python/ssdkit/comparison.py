"""Runs side by side: what differs, and by how much that may be off."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from html import escape
from typing import Any

from ssdkit import _core
from ssdkit.report import Report
from ssdkit.table import Table


class Comparison:
    """How runs differ from the first of them."""

    def __init__(self, found: dict[str, Any], text: str, page: str) -> None:
        self._found, self._text, self._page = found, text, page

    def to_dict(self) -> dict[str, Any]:
        """As `ssdkit compare --json` prints it."""
        return self._found

    def table(self) -> Table:
        """Each figure of each run.

        Columns: `figure`, `unit`, `run`, `value`, `waver` (by what part another such run
        would be off, with 95 %), `difference` (from the first run, as a part of it),
        `difference_waver`. What is not known is NaN.
        """
        names: dict[str, type] = {"figure": str, "unit": str, "run": str}
        numbers = ("value", "waver", "difference", "difference_waver")
        names |= dict.fromkeys(numbers, float)
        runs = [run["name"] for run in self._found["runs"]]
        rows = [
            (
                *(figure["name"], figure["unit"], runs[at]),
                *(float("nan") if of[name] is None else of[name] for name in numbers),
            )
            for figure in self._found["figures"]
            for at, of in enumerate(figure["runs"])
        ]
        return Table.of_rows(names, rows)

    def page(self) -> str:
        """A page with pictures, for a browser."""
        return self._page

    def __str__(self) -> str:
        return self._text.rstrip("\n")

    __repr__ = __str__

    def _repr_html_(self) -> str:
        return f"<pre>{escape(str(self))}</pre>"


def compare(
    reports: Sequence[Report | str | os.PathLike[str]] | Mapping[str, Report],
) -> Comparison:
    """Sets runs side by side: the first, and how the others differ from it.

    They are reports, or files of `ssdkit bench --json`; of a mapping the keys are their
    names. Raises UsageError where something is no report, ValueError unless there are 1
    to 8 of them, and OSError.

    >>> import ssdkit
    >>> runs = {
    ...     name: ssdkit.bench(f"mem:{name},size=64M", rw="randread", ios=10_000)
    ...     for name in ("znand", "tlc")
    ... }
    >>> print(*str(ssdkit.compare(runs)).splitlines()[:2], sep=chr(10))
    [1] znand
    [2] tlc
    """
    pairs = (
        list(reports.items())
        if isinstance(reports, Mapping)
        else [_named(at, one) for at, one in enumerate(reports)]
    )
    if not 1 <= len(pairs) <= 8:
        raise ValueError(f"{len(pairs)} reports: from 1 to 8 are compared")
    return Comparison(*_core.compare([(name, report.to_json()) for name, report in pairs]))


def _named(at: int, one: Report | str | os.PathLike[str]) -> tuple[str, Report]:
    if isinstance(one, Report):
        return f"{at}: {one.name}", one
    return os.fspath(one), Report.load(one)
