"""The stubs of the native module are what it has."""

from __future__ import annotations

import ast
import inspect
from pathlib import Path

import ssdkit
from ssdkit import _core

STUBS = ast.parse(Path(ssdkit.__file__).with_name("_core.pyi").read_text())


def _names(body: list[ast.stmt]) -> dict[str, ast.stmt]:
    found: dict[str, ast.stmt] = {}
    for node in body:
        if isinstance(node, ast.FunctionDef | ast.ClassDef):
            found[node.name] = node
        elif isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name):
            found[node.target.id] = node
    return found


def _public(of: object) -> set[str]:
    return {name for name in dir(of) if not name.startswith("_")}


def _same(stub: ast.stmt, of: object, name: str) -> None:
    if isinstance(stub, ast.FunctionDef):
        told = [a.arg for a in (*stub.args.posonlyargs, *stub.args.args, *stub.args.kwonlyargs)]
        for more in (stub.args.vararg, stub.args.kwarg):
            told += [more.arg] if more else []
        # What has no signature of its own, as a class of a C type, has none to compare.
        signature = inspect.signature(of)  # type: ignore[arg-type]
        assert list(signature.parameters) == told, name
    elif isinstance(stub, ast.ClassDef):
        own = {n: s for n, s in _names(stub.body).items() if not n.startswith("_")}
        assert isinstance(of, type) and of.__base__ is not None
        base = _public(of.__base__)
        assert set(own) == _public(of) - base, name
        for each, inner in own.items():
            if callable(getattr(of, each)):
                _same(inner, getattr(of, each), f"{name}.{each}")


def test_stubs_are_what_the_module_has() -> None:
    stubs = _names(STUBS.body)
    assert set(stubs) - {"__version__"} == _public(_core)
    for name, stub in stubs.items():
        _same(stub, getattr(_core, name), name)


def test_all_that_is_public_is_documented() -> None:
    for name in ssdkit.__all__:
        of = getattr(ssdkit, name)
        assert isinstance(of, str) or inspect.getdoc(of), name
