"""Packages that sweeps and fleets need and the rest of ssdkit does not."""

from __future__ import annotations

import hashlib
import importlib
from functools import cache
from pathlib import Path
from typing import Any

from ssdkit import _core
from ssdkit._core import Error


def optional(module: str, extra: str) -> Any:
    """A module that is imported when it is used. Raises :class:`ssdkit.Error` that says what
    to install where it is not there."""
    try:
        return importlib.import_module(module)
    except ModuleNotFoundError as e:
        if e.name is None or not module.startswith(e.name.split(".")[0]):
            raise
        package = module.split(".")[0]
        raise Error(f"{package} is not here: pip install 'ssdkit[{extra}]'") from e


@cache
def build() -> str:
    """Which build of ssdkit this is: its version, and a hash of its native module."""
    text = hashlib.sha256(Path(str(_core.__file__)).read_bytes()).hexdigest()
    return f"{_core.__version__}+{text[:16]}"
