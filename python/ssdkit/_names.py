"""What drives are called."""

from __future__ import annotations

import os
from collections.abc import Mapping

from ssdkit import _core
from ssdkit._core import UsageError


def stands(native: _core.Drive | _core.KeyValue) -> str:
    """What is to be said of a drive that cannot be used."""
    if native.inherited:
        return ", of the process that opened it"
    return ", closed" if native.closed else ""


def named(name: str | os.PathLike[str], keys: Mapping[str, object]) -> str:
    """A drive's name with keys that were given as keywords.

    >>> named("mem:tlc", {"size": "1G", "suspend": True})
    'mem:tlc,size=1G,suspend=true'
    """
    if isinstance(name, os.PathLike):
        path = os.fspath(name)
        # So that it is a path whatever is in it.
        name = path if not isinstance(path, str) or os.path.isabs(path) else f"./{path}"
    if not isinstance(name, str):
        raise TypeError(f"a drive's name is a text or a path, not {type(name).__name__}")
    if keys and not name.startswith("mem:"):
        raise UsageError(f"{name}: keys are for mem: drives; leave out {', '.join(keys)}")
    texts = {
        key: str(value).lower() if isinstance(value, bool) else str(value)
        for key, value in keys.items()
    }
    return name + "".join(f",{key}={text}" for key, text in texts.items())
