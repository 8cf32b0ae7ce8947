"""Columns of equal length, as arrays and as frames of other libraries."""

from __future__ import annotations

import importlib
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

if TYPE_CHECKING:
    import pandas
    import pyarrow

__all__ = ["Table"]


def needs(module: str, extra: str) -> Any:
    """A module of an optional dependency; without it an error that says what installs it."""
    try:
        return importlib.import_module(module)
    except ImportError as error:
        name = module.partition(".")[0]
        if error.name is not None and error.name.partition(".")[0] != name:
            # It is there, and what it needs itself is not.
            raise
        text = f"{name} is not installed: pip install 'ssdkit[{extra}]'"
        raise ImportError(text, name=name) from error


class Table(Mapping[str, NDArray[Any]]):
    """Columns by name, each a NumPy array; all are of the same length.

    What is not known is NaN in a column of numbers and an empty text in one of texts.

    >>> import numpy as np
    >>> table = Table({"second": np.array([0.0, 1.0]), "iops": np.array([10.0, 12.0])})
    >>> table["iops"].max().item()
    12.0
    >>> table
    Table of 2 rows: second, iops
    """

    def __init__(self, columns: Mapping[str, NDArray[Any]]) -> None:
        self._columns = dict(columns)

    @classmethod
    def of_rows(cls, names: Mapping[str, type], rows: list[tuple[Any, ...]]) -> Table:
        """A table of rows, whose columns have these names and types: int, float or str."""
        kinds = {int: np.int64, float: np.float64, str: object}
        each = list(zip(*rows, strict=True)) or [()] * len(names)
        pairs = zip(names.items(), each, strict=True)
        return cls({name: np.array(values, kinds[kind]) for (name, kind), values in pairs})

    def __getitem__(self, name: str) -> NDArray[Any]:
        return self._columns[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._columns)

    def __len__(self) -> int:
        return len(self._columns)

    @property
    def rows(self) -> int:
        """How many rows it has."""
        return next((len(column) for column in self._columns.values()), 0)

    def arrow(self) -> pyarrow.Table:
        """As a table of Arrow, over the same memory but for texts.

        Raises ImportError where pyarrow is missing.
        """
        arrow = needs("pyarrow", "frames")
        return arrow.table({name: arrow.array(column) for name, column in self.items()})

    def pandas(self) -> pandas.DataFrame:
        """As a frame of pandas, over the same memory but for texts.

        Raises ImportError where pandas is missing.
        """
        return needs("pandas", "frames").DataFrame(self._columns, copy=False)

    def __repr__(self) -> str:
        return f"Table of {self.rows} rows: {', '.join(self)}"

    def _repr_html_(self) -> str:
        from html import escape

        shown = min(self.rows, 20)
        head = "".join(f"<th>{escape(name)}</th>" for name in self)
        cells = [[_cell(column[row]) for column in self.values()] for row in range(shown)]
        body = "".join(
            "<tr>" + "".join(f"<td>{escape(cell)}</td>" for cell in row) + "</tr>" for row in cells
        )
        more = f"<p>and {self.rows - shown} rows more</p>" if shown < self.rows else ""
        return f"<table><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table>{more}"


def _cell(value: Any) -> str:
    return f"{value:.6g}" if isinstance(value, float) else str(value)
