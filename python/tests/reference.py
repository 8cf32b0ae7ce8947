"""The reference page, from the docstrings: `python python/tests/reference.py` writes it."""

from __future__ import annotations

import dataclasses
import importlib
import inspect
import pkgutil
import re
import typing
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import ssdkit

PAGE = Path(__file__).parents[2] / "docs/python-reference.md"
HEAD = """# Python reference

Made from the docstrings by `python python/tests/reference.py`; [how to begin](python.md).
"""


def page() -> str:
    """The whole page."""
    parts = [HEAD, "\n".join(_exceptions())]
    for info in sorted(pkgutil.iter_modules(ssdkit.__path__), key=lambda info: info.name):
        if not info.name.startswith("_"):
            parts += _module(importlib.import_module(f"ssdkit.{info.name}"))
    return "\n".join(parts).rstrip("\n") + "\n"


def _exceptions() -> Iterator[str]:
    yield "## Exceptions\n"
    for name in ssdkit.__all__:
        of = getattr(ssdkit, name)
        if isinstance(of, type) and issubclass(of, Exception):
            base = of.__base__
            assert base is not None
            yield f"- `ssdkit.{name}`, a kind of `{base.__name__}`: {inspect.getdoc(of)}"
    yield ""


def _module(module: Any) -> list[str]:
    public = getattr(module, "__all__", vars(module))
    here = [
        (name, of)
        for name, of in vars(module).items()
        if name in public and not name.startswith("_")
        if getattr(of, "__module__", "") == module.__name__
        if inspect.isfunction(of) or isinstance(of, type)
    ]
    if not here:
        return []
    parts = [f"## {module.__name__}\n", _text(module), ""]
    for name, of in here:
        path = name if name in ssdkit.__all__ else f"{module.__name__.partition('.')[2]}.{name}"
        parts += _class(path, of) if isinstance(of, type) else _function(f"ssdkit.{path}", of)
    return parts


def _function(name: str, of: Any, level: int = 3) -> list[str]:
    return [f"{'#' * level} `{name}{_signature(of)}`\n", _text(of), ""]


def _members(of: type) -> dict[str, Any]:
    """What a class has of its own, and then of those of ours that it is made of."""
    all_: dict[str, Any] = {}
    for each in of.__mro__:
        if each.__module__.startswith("ssdkit"):
            for name, member in vars(each).items():
                all_.setdefault(name, member)
    return all_


def _class(path: str, of: type) -> list[str]:
    is_data = dataclasses.is_dataclass(of)
    signature = "" if is_data or issubclass(of, BaseException) else _signature(of)
    parts = [f"### `ssdkit.{path}{signature}`\n", _text(of), ""]
    lines = [f"- `{name}`: `{kind}`{_said(text)}" for name, kind, text in _fields(of)]
    parts += [*lines, ""] if lines else []
    for name, member in _members(of).items():
        if name.startswith("_") or not inspect.getdoc(member):
            continue
        if isinstance(member, property):
            kind = inspect.signature(typing.cast(Any, member.fget)).return_annotation
            parts += [f"#### `.{name}`: `{kind}`\n", _text(member), ""]
        elif inspect.isfunction(member) or isinstance(member, classmethod | staticmethod):
            parts += _function(f".{name}", getattr(of, name), 4)
    return parts


def _fields(of: type) -> Iterator[tuple[str, str, str]]:
    """Attributes that are annotated in the class, with what a comment `#:` says of each."""
    said: list[str] = []
    for line in inspect.getsource(of).splitlines():
        comment = re.fullmatch(r"    #: (.*)", line)
        field = re.fullmatch(r"    ([a-z]\w*): ([^=]+?)(?: = .*)?", line)
        if comment:
            said.append(comment[1])
        elif field:
            yield field[1], field[2], " ".join(said)
            said = []
        elif line.startswith("    def "):
            return


def _said(text: str) -> str:
    return f". {text}" if text else ""


def _signature(of: Any) -> str:
    """Of a method without itself, and with names as they are imported."""
    found = inspect.signature(of)
    parts, is_named = [], False
    for one in found.parameters.values():
        if one.name in ("self", "cls"):
            continue
        if one.kind is one.KEYWORD_ONLY and not is_named:
            parts.append("*")
        is_named |= one.kind in (one.KEYWORD_ONLY, one.VAR_POSITIONAL)
        stars = "*" * (one.kind is one.VAR_POSITIONAL) + "**" * (one.kind is one.VAR_KEYWORD)
        default = "" if one.default is one.empty else f" = {one.default!r}"
        parts.append(f"{stars}{one.name}: {_short(one.annotation)}{default}")
    result = _short(found.return_annotation)
    gives = "" if result in ("None", "_empty") else f" -> {result}"
    return f"({', '.join(parts)}){gives}"


def _short(annotation: Any) -> str:
    text = annotation if isinstance(annotation, str) else getattr(annotation, "__name__", "")
    return re.sub(r"\b(?:pyarrow|pandas|os)\.", "", text)


def _text(of: Any) -> str:
    """A docstring, its examples as blocks."""
    blocks = (inspect.getdoc(of) or "").split("\n\n")
    shown = [
        re.sub("^", "    ", b, flags=re.MULTILINE) if b.startswith(">>>") else b for b in blocks
    ]
    return "\n\n".join(shown)


if __name__ == "__main__":
    PAGE.write_text(page(), encoding="utf-8")
