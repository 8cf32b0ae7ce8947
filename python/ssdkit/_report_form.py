"""What a report has, and of which kind each of it is: so that one that is damaged says where.

Keys that no report lacks are wanted; others may be missing, as in those of older versions.
"""

from __future__ import annotations

import dataclasses
import typing
from collections.abc import Mapping
from typing import Any

from ssdkit._core import UsageError
from ssdkit._numbers import LATEST, U64, said
from ssdkit.figures import Collection, Cpu, Latency, SteadyState, WriteAmplification

#: No figure is larger.
MOST = 1e300


@dataclasses.dataclass(frozen=True)
class Maybe:
    """Something that may be missing, or null."""

    form: Any


@dataclasses.dataclass(frozen=True)
class Each:
    """A list of such."""

    form: Any


@dataclasses.dataclass(frozen=True)
class Named:
    """An object of such, by whatever names."""

    form: Any


class Numbers:
    """Texts, each of equally many numbers."""


class Letters:
    """Texts, all of one length."""


class Large:
    """A whole number of 64 bits."""


_WORDS: dict[Any, str] = {
    bool: "true or false",
    int: "a whole number",
    Large: "a whole number",
    float: "a number",
    str: "a text",
    dict: "an object",
    Numbers: "a list of texts, each of as many numbers",
    Letters: "a list of texts, all of one length",
}

_PART = {"part": str, "behind": Maybe(str), "ns": float}
_WHOLE_PART = {**_PART, "ns": int}
_DIRECTION = {"ios": int, "bytes": int, "iops": float, "latency_ns": Latency}
_REASONS = ("user", "gc", "padding", "metadata", "parity", "folds")
_COUNTS = ("p50", "p999", "write_amplification", "free_chunks", "collections", "erases")
_ROW = {
    "second": float,
    "seconds": float,
    "ios": int,
    "iops": float,
    **dict.fromkeys(_COUNTS, Maybe(float)),
    "programmed": Maybe(dict.fromkeys(_REASONS, Maybe(float))),
    "tail": Maybe({"requests": int, "from_ns": int, "parts": Each(_WHOLE_PART)}),
}
_SLOW = {
    "op": str,
    "offset": int,
    "bytes": int,
    "start_ns": Maybe(int),
    "latency_ns": int,
    "parts": Each(_WHOLE_PART),
}
_GROUP = {"share": float, "requests": int, "from_ns": int, "parts": Each(_PART)}

#: By key, what a report has there.
FORM: dict[str, Any] = {
    "version": str,
    "seed": Large,
    "drive": {"name": Maybe(str), "profile": Maybe(None)},
    "workload": {"qd": Maybe(float), "threads": Maybe(float)},
    "ios": int,
    "bytes": int,
    "errors": int,
    "failed_requests": int,
    "iops": float,
    "bytes_per_second": float,
    "seconds": float,
    "wall_seconds": float,
    "interrupted": Maybe(bool),
    "void": Maybe(str),
    "latency_ns": Latency,
    "read": Maybe(_DIRECTION),
    "write": Maybe(_DIRECTION),
    "cpu": Cpu,
    "write_amplification": Maybe(WriteAmplification),
    "steady": Maybe(SteadyState),
    "gc": Maybe(Collection),
    "erases": Maybe(int),
    "warnings": Maybe(Each(str)),
    "distribution": {"below_ns": Each(Large), "n": Each(Large)},
    "series": Each(_ROW),
    "slowest": Maybe(Each(_SLOW)),
    "explained": Maybe(Named(Each(_GROUP))),
    "dies": Maybe({"ends": Each(float), "busy": Numbers, "pus": int}),
    "chunks": Maybe(
        {"each": int, "states": Letters, "erases": Numbers, "valid": Maybe(Numbers), "pus": int}
    ),
}


def check(source: str, found: Mapping[str, Any], key: str) -> None:
    """Raises UsageError unless what a report has by this key is what it is to be. `source` is
    what the report is called."""
    _look(source, key, found.get(key, _MISSING), FORM[key])


_MISSING = object()


def _look(source: str, path: str, value: Any, form: Any) -> None:
    if isinstance(form, Maybe):
        if value is None or value is _MISSING or form.form is None:
            return
        form = form.form
    if dataclasses.is_dataclass(form) and isinstance(form, type):
        form = _fields(form)
    if isinstance(form, dict):
        _same(source, path, value, isinstance(value, Mapping), dict)
        for name, each in form.items():
            _look(source, f"{path}.{name}", value.get(name, _MISSING), each)
    elif isinstance(form, Named):
        _same(source, path, value, isinstance(value, Mapping), dict)
        for name, each in value.items():
            _look(source, f"{path}.{name}", each, form.form)
    elif isinstance(form, Each):
        _same(source, path, value, isinstance(value, list), "a list")
        for n, each in enumerate(value):
            _look(source, f"{path}[{n}]", each, form.form)
    else:
        _same(source, path, value, _is(value, form), form)


def _fields(of: type) -> dict[str, Any]:
    """The form of figures that are kept so."""
    form: dict[str, Any] = {}
    for name, hint in typing.get_type_hints(of).items():
        kinds = typing.get_args(hint)
        form[name] = Maybe(kinds[0]) if type(None) in kinds else hint
    return form


def _is(value: Any, kind: Any) -> bool:
    if kind in (int, Large):
        most = LATEST if kind is int else U64
        return isinstance(value, int) and not isinstance(value, bool) and 0 <= value <= most
    if kind is float:
        is_number = isinstance(value, (int, float)) and not isinstance(value, bool)
        return is_number and not abs(value) > MOST
    if kind in (Numbers, Letters):
        return isinstance(value, list) and _is_even(value, kind)
    return isinstance(value, kind)


def _is_even(lines: list[Any], kind: Any) -> bool:
    if not all(isinstance(line, str) for line in lines):
        return False
    try:
        widths = {
            len(line) if kind is Letters else len([*map(float, line.split())]) for line in lines
        }
    except ValueError:
        return False
    return len(widths) <= 1


def _same(source: str, path: str, value: Any, is_so: bool, kind: Any) -> None:
    """Raises where it is not."""
    if is_so:
        return
    wanted = _WORDS.get(kind, kind)
    there = "is missing" if value is _MISSING else f"is {said(value)}"
    raise UsageError(
        f"{source}: {path} {there}, and {wanted} is wanted: the report is damaged; run it again, "
        "by ssdkit bench --json"
    )
