"""``ssdkit sweep FILE.toml``, which runs ``python3 -m ssdkit.sweep_command FILE.toml``.

Exit codes: 0 done, 1 a run failed or the sweep did, 2 asked for what cannot be, 130 stopped.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from ssdkit._core import Error, UsageError
from ssdkit._numbers import said
from ssdkit.sweep_extra import optional
from ssdkit.sweep_grid import Knee, LatinHypercube, Range, Sobol
from ssdkit.sweeps import Sweep, sweep

#: What a file may have beside ``base``.
SECTIONS = ("base", "sweep", "grid", "points", "latin-hypercube", "sobol", "knee")
SETTINGS = ("share", "reports", "invalid", "workers", "connect_timeout")
#: Tables and lists of a file within one another, at most: all that means something is less deep.
MOST_DEEP = 8
TOO_DEEP = f"at most {MOST_DEEP} tables and lists may be within one another"
#: What a table of the text form shows beside the points.
SHOWN = ("iops", "latency_p50_ns", "latency_p999_ns", "write_amplification")


def read(path: Path) -> dict[str, Any]:
    """What a file says, as the arguments of :func:`ssdkit.sweep`. Raises
    :class:`ssdkit.UsageError` where it is none of a sweep."""
    # Python 3.10 has none of its own.
    toml = optional("tomllib" if sys.version_info >= (3, 11) else "tomli", "sweep")
    try:
        told: dict[str, Any] = toml.loads(path.read_text(encoding="utf-8"))
    except (OSError, UnicodeDecodeError, toml.TOMLDecodeError) as e:
        raise UsageError(f"{path}: it cannot be read: {e}") from e
    except RecursionError:
        raise UsageError(f"{path}: {TOO_DEEP}") from None
    if _is_deep(told):
        raise UsageError(f"{path}: {TOO_DEEP}")
    unknown = [name for name in told if name not in SECTIONS]
    if unknown:
        raise UsageError(f"{path}: {unknown[0]} is no part of a sweep: take {', '.join(SECTIONS)}")
    if not isinstance(told.get("base"), dict):
        raise UsageError(
            f"{path}: no [base]: give the drive there, and what all runs have in common"
        )
    grids: list[Any] = []
    if "grid" in told:
        grids.append(_flat(_table(told["grid"], "grid")))
    if "points" in told:
        if not isinstance(told["points"], list):
            raise UsageError(f"{path}: write each point as [[points]]")
        grids.append([_flat(_table(point, "[points]")) for point in told["points"]])
    for name, kind in (("latin-hypercube", LatinHypercube), ("sobol", Sobol)):
        if name in told:
            given = _only(_table(told[name], name), name, ("n", "seed", "ranges"))
            ranges = _flat(_table(given["ranges"], f"{name}.ranges"))
            grids.append(kind(given["n"], ranges, given.get("seed", 0)))
    if "knee" in told:
        grids.append(_knee(_table(told["knee"], "knee")))
    if not grids:
        raise UsageError(f"{path}: nothing changes: give a [grid], for example qd = [1, 4, 16]")
    settings = _only(_table(told.get("sweep", {}), "sweep"), "sweep", SETTINGS)
    return {"base": _flat(told["base"]), "grid": tuple(grids), **settings}


def _is_deep(told: object) -> bool:
    """Whether anything is within more than :data:`MOST_DEEP` tables and lists."""
    level = [told]
    for _ in range(MOST_DEEP + 1):
        inner = (list(one.values()) if isinstance(one, dict) else one for one in level)
        level = [each for one in inner if isinstance(one, list) for each in one]
    return bool(level)


def _table(table: object, name: str) -> dict[str, Any]:
    if not isinstance(table, dict):
        raise UsageError(f"{name} is {said(table)}: write it as a table, [{name}]")
    return table


def _only(table: dict[str, Any], name: str, known: Sequence[str]) -> dict[str, Any]:
    """A table that has no other keys, and those without which it says nothing."""
    unknown = [key for key in table if key not in known]
    if unknown:
        raise UsageError(f"{name}.{unknown[0]} is unknown: take {', '.join(known)}")
    needed: dict[str, tuple[str, ...]] = {
        "latin-hypercube": ("n", "ranges"),
        "sobol": ("n", "ranges"),
        "knee": ("key", "metric", "from", "to"),
    }
    missing = [key for key in needed.get(name, ()) if key not in table]
    if missing:
        raise UsageError(f"{name}.{missing[0]} is missing")
    return table


def _flat(table: Mapping[str, Any]) -> dict[str, Any]:
    """``drive.spare`` of TOML, a table in a table, as one key."""
    flat: dict[str, Any] = {}
    for key, value in table.items():
        if key == "drive" and isinstance(value, dict):
            flat.update({f"drive.{name}": each for name, each in value.items()})
        else:
            flat[key] = value
    return flat


def _knee(table: dict[str, Any]) -> Knee:
    own = ("key", "metric", "points", "start", "narrow")
    given = _only(table, "knee", (*own, "from", "to", "log", "integer"))
    kept = {key: value for key, value in given.items() if key in own}
    over = Range(given["from"], given["to"], given.get("log", False), given.get("integer", False))
    return Knee(**kept, range=over)


def text(done: Sweep) -> str:
    """The rows as a table of text."""
    rows = done.rows()
    names = list(rows[0])
    points = names[: names.index("key")]
    shown = [*points, *(name for name in SHOWN if any(row[name] is not None for row in rows))]
    lines = [shown, *([_shown(row[name]) for name in shown] for row in rows)]
    widths = [max(len(line[n]) for line in lines) for n in range(len(shown))]
    told = [
        "  ".join(cell.rjust(width) for cell, width in zip(line, widths, strict=True))
        for line in lines
    ]
    for n, row in enumerate(rows):
        if row["error"]:
            told[n + 1] += f"  FAILED: {row['error']}"
    where = f"; rows are in {done.folder}" if done.folder else ""
    told.append(
        f"{len(done)} rows: {done.ran} run, {done.known} known before, {done.failed} failed{where}"
    )
    return "\n".join(told)


def _shown(value: object) -> str:
    return "-" if value is None else f"{value:.5g}" if isinstance(value, float) else str(value)


def main(arguments: Sequence[str] | None = None) -> int:
    """Runs a sweep that a file tells of."""
    parser = argparse.ArgumentParser(prog="ssdkit sweep")
    parser.add_argument("file", type=Path, metavar="FILE.toml")
    parser.add_argument("--out", metavar="DIR", help="keep the rows there, and go on from them")
    parser.add_argument("--scheduler", metavar="ADDRESS", help="a Dask scheduler, tcp://HOST:PORT")
    parser.add_argument("--workers", type=int, metavar="N", help="processes on this machine")
    parser.add_argument("--json", action="store_true", help="print one JSON object")
    args = parser.parse_args(arguments)
    try:
        given = read(args.file)
        if args.workers is not None:
            given["workers"] = args.workers
        elif args.scheduler is not None:
            given.pop("workers", None)
        done = sweep(**given, out=args.out, scheduler=args.scheduler)
    except UsageError as e:
        print(f"error: {e}", file=sys.stderr)
        return 2
    except (Error, ImportError, TypeError, MemoryError) as e:
        print(f"error: {str(e) or 'there is not enough memory'}", file=sys.stderr)
        return 2 if isinstance(e, TypeError) else 1
    except KeyboardInterrupt:
        print("stopped; what came is kept where --out says", file=sys.stderr)
        return 130
    if args.json:
        told = {"rows": done.rows(), "ran": done.ran, "known": done.known, "failed": done.failed}
        print(json.dumps({**told, "folder": str(done.folder) if done.folder else None}))
    else:
        print(text(done))
    if done.failed:
        print(f"error: {done.failed} of {len(done)} runs failed", file=sys.stderr)
    return 1 if done.failed else 0


if __name__ == "__main__":
    sys.exit(main())
