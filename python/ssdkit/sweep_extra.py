"""Packages that sweeps and fleets need and the rest of ssdkit does not."""

from __future__ import annotations

import hashlib
from functools import cache
from pathlib import Path

from ssdkit import _core
from ssdkit.table import needs

#: A module that is imported when it is used.
optional = needs


@cache
def build() -> str:
    """Which build of ssdkit this is: its version, and a hash of its native module."""
    text = hashlib.sha256(Path(str(_core.__file__)).read_bytes()).hexdigest()
    return f"{_core.__version__}+{text[:16]}"
