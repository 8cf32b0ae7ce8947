"""The rows of sweeps, and of fleets, in a folder, as Parquet.

``DIR/rows`` has parts, each written whole under another name, synced and then renamed: a
reader, and a sweep that goes on after a kill, sees whole parts only. ``DIR/runs`` has what
is the machine's own (wall times, workers, errors that may pass), and is no part of the
rows. ``DIR/result.parquet`` has the rows of the last sweep that ended, in the order of its
grid. One sweep at a time writes to a folder.
"""

from __future__ import annotations

import errno
import fcntl
import os
import secrets
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from ssdkit._core import Error, UsageError
from ssdkit.sweep_extra import optional
from ssdkit.sweep_run import FIGURES

#: Rows that came are written after so many seconds, or so many rows.
SECONDS, ROWS = 2.0, 1000
#: So many parts are written anew as one when a folder is opened.
MOST_PARTS = 64


def rows_schema() -> Any:
    """The columns of a sweep's rows."""
    pa = optional("pyarrow", "sweep")
    kinds = {int: pa.int64(), float: pa.float64(), bool: pa.bool_(), str: pa.string()}
    columns = [("key", pa.string()), ("error", pa.string())]
    columns += [(name, kinds[kind]) for name, (_, kind) in FIGURES.items()]
    return pa.schema([*columns, ("report", pa.string())])


def _runs_schema() -> Any:
    pa = optional("pyarrow", "sweep")
    text = ("key", "worker", "error")
    return pa.schema([(name, pa.string()) for name in text] + [("wall_seconds", pa.float64())])


class Store:
    """A folder that is written by this sweep alone while it is open. Raises
    :class:`ssdkit.UsageError` where another has it, :class:`ssdkit.Error` where the disk is
    full."""

    def __init__(self, folder: Path, schema: Any = None) -> None:
        self.folder = folder
        self._schemas = {"rows": schema or rows_schema(), "runs": _runs_schema()}
        self._came: dict[str, list[dict[str, Any]]] = {"rows": [], "runs": []}
        self._written = time.monotonic()
        self._stored = 0
        self._full = False
        try:
            for part in ("rows", "runs"):
                (folder / part).mkdir(parents=True, exist_ok=True)
            self._lock = open(folder / ".lock", "w", encoding="ascii")  # noqa: SIM115
        except OSError as e:
            raise UsageError(f"{folder}: no sweep can write there: {e.strerror}") from e
        try:
            fcntl.flock(self._lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as e:
            self._lock.close()
            raise UsageError(
                f"{folder}: another sweep writes there: wait until it ends, or take another folder"
            ) from e
        for unfinished in folder.rglob("*.unfinished"):
            unfinished.unlink(missing_ok=True)
        self._compact()

    def __enter__(self) -> Store:  # noqa: PYI034  (Python 3.10 has no Self)
        return self

    def __exit__(self, *_: object) -> None:
        try:
            # What did not fit will not fit now.
            if not self._full:
                self.flush()
        finally:
            self._lock.close()

    def table(self) -> Any:
        """All rows that are there, of this sweep and of others."""
        pa = optional("pyarrow", "sweep")
        tables = [self._read(part) for part in self._parts("rows")]
        schema = self._schemas["rows"]
        table = pa.concat_tables(tables) if tables else schema.empty_table()
        self._stored = table.num_rows
        return table

    def add(self, run: Mapping[str, Any], rows: Sequence[Mapping[str, Any]]) -> None:
        """A run has ended. It is written with others, soon; all of its rows in one part."""
        self._came["runs"].append(dict(run))
        self._came["rows"] += [dict(row) for row in rows]
        due = time.monotonic() - self._written >= SECONDS
        if due or len(self._came["rows"]) + len(self._came["runs"]) >= ROWS:
            self.flush()

    def flush(self) -> None:
        """Writes what came."""
        pa = optional("pyarrow", "sweep")
        for kind in ("rows", "runs"):
            came = self._came[kind]
            if came:
                self._write(kind, pa.Table.from_pylist(came, schema=self._schemas[kind]))
                self._stored += len(came) if kind == "rows" else 0
                came.clear()
        self._written = time.monotonic()

    def result(self, table: Any) -> None:
        """Writes the rows of the whole sweep."""
        self._save(self.folder / "result.parquet", table)

    def _write(self, kind: str, table: Any) -> None:
        name = f"{time.time_ns():020d}-{secrets.token_hex(4)}.parquet"
        self._save(self.folder / kind / name, table)

    def _save(self, path: Path, table: Any) -> None:
        """Writes a file whole, or not at all."""
        made = path.with_suffix(".unfinished")
        try:
            save(made, table)
            os.replace(made, path)
            _sync(path.parent)
        except OSError as e:
            made.unlink(missing_ok=True)
            self._full = True
            if e.errno in (errno.ENOSPC, errno.EDQUOT, errno.EFBIG):
                raise Error(
                    f"{self.folder}: no room for more rows; {self._stored} are there, and whole: "
                    "make room, and run the same sweep again, which goes on from there"
                ) from e
            raise Error(f"{path}: cannot be written: {e.strerror}") from e

    def _parts(self, kind: str) -> list[Path]:
        return sorted((self.folder / kind).glob("*.parquet"))

    def _read(self, part: Path) -> Any:
        pa, pq = optional("pyarrow", "sweep"), optional("pyarrow.parquet", "sweep")
        kind = part.parent.name
        try:
            table = pq.ParquetFile(part, page_checksum_verification=True).read()
        except (pa.ArrowException, UnicodeError, OSError) as e:
            raise Error(f"{part}: no rows can be read from it: {e}: remove it") from e
        if table.schema != self._schemas[kind]:
            raise UsageError(
                f"{part}: its rows are of another kind, or of another version of ssdkit: "
                "take another folder"
            )
        return table

    def _compact(self) -> None:
        """Many parts become one: first that is written, then they go."""
        pa = optional("pyarrow", "sweep")
        for kind in ("rows", "runs"):
            parts = self._parts(kind)
            if len(parts) <= MOST_PARTS:
                continue
            self._write(
                kind, pa.concat_tables([self._read(part) for part in parts]).combine_chunks()
            )
            for part in parts:
                part.unlink()


def save(path: Path, table: Any) -> None:
    """Writes a table to a file, and waits until it is on the disk. The system's own errors
    come through."""
    pa, pq = optional("pyarrow", "sweep"), optional("pyarrow.parquet", "sweep")
    sink = pa.BufferOutputStream()
    pq.write_table(table, sink, compression="zstd", write_page_checksum=True)
    with open(path, "wb") as file:
        file.write(sink.getvalue())
        file.flush()
        os.fsync(file.fileno())


def _sync(folder: Path) -> None:
    handle = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def table_of(points: Sequence[Mapping[str, Any]], rows: Sequence[Mapping[str, Any]]) -> Any:
    """One table of points and their rows, in this order: the points' columns first. A value
    that is not of its column's kind makes all of that column texts. Of a name that is a
    figure's, too, the point's column is ``set_NAME``."""
    pa = optional("pyarrow", "sweep")
    keys = list(dict.fromkeys(key for point in points for key in point))
    columns: dict[str, Any] = {}
    schema = rows_schema()
    for key in keys:
        values = [point.get(key) for point in points]
        columns[f"set_{key}" if key in schema.names else key] = _column(pa, values)
    for field in schema:
        if field.name == "report" and all(row.get("report") is None for row in rows):
            continue
        columns[field.name] = pa.array([row.get(field.name) for row in rows], field.type)
    return pa.table(columns)


def _column(pa: Any, values: list[Any]) -> Any:
    kinds = {type(value) for value in values if value is not None}
    if kinds == {int, float}:
        return pa.array([None if value is None else float(value) for value in values])
    if len(kinds) > 1 or kinds & {list}:
        return pa.array([None if value is None else str(value) for value in values])
    return pa.array(values)
