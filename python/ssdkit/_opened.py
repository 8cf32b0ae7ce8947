"""What is opened on a drive, and used until it is closed."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from typing_extensions import Self

    from ssdkit import _core


class Opened:
    """What a drive and a store on one have in common."""

    _native: _core.Drive | _core.KeyValue

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        # What ends in a forked process is that one alone.
        if not self._native.inherited:
            self._native.close()

    @property
    def name(self) -> str:
        """What the drive is called, with its keys."""
        return self._native.name

    @property
    def now(self) -> int:
        """Drive time, in ns since it was switched on."""
        return self._native.now

    @property
    def closed(self) -> bool:
        """Whether it was closed."""
        return self._native.closed
