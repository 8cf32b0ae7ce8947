"""Key-value stores on drives, in virtual time."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Mapping
from typing import TypeVar

from ssdkit import _core
from ssdkit._names import named, stands
from ssdkit._numbers import U64, whole
from ssdkit._opened import Opened

V = TypeVar("V", bound="bytes | None")


class KeyValue(Opened):
    """An ordered key-value store on a drive in this process. Bytes in, bytes out.

    `name` is a `mem:` drive, whose keys may be given as keywords, or a drive file; `store` says
    what keeps the records:

    - "log": a tree whose pages are written as a log on a drive with blocks. The default.
    - "in-place": a tree whose pages are written where they are, with a journal.
    - "batched": a tree on a drive that takes pages in batches (`target=batch`).
    - "kv": no tree, but a drive that keeps values by key itself (`target=kv`).

    On a drive file the store is found again; one that was never used gets a new one, and on
    anything else it is refused. `memory` is for pages, or for values on their way, in bytes.
    `seed` is that of a `mem:` drive's policies; a drive file has its own.

    Keys have at most 255 bytes. What was done is durable after `flush` or `close`; a drive file
    is shut down by `close`, or at the end of a `with`. A call ends when its operations have, and
    `now` is then drive time, in ns.

    A store is used by the process that opened it. In one that was forked from that all calls
    raise `Error`, and the end of a `with`, or of the object, does nothing.

    Raises `DriveError` where no such drive can be, `UsageError` for what else cannot, and `Error`
    where the drive fails.

    >>> with KeyValue("mem:tlc", size="64M") as store:
    ...     store[b"one"] = b"1"
    ...     store.put({b"two": b"2", b"three": b"3"})
    ...     store.get(b"two"), store.get(b"four"), store.scan(b"p")
    (b'2', None, [(b'three', b'3'), (b'two', b'2')])
    """

    _native: _core.KeyValue

    def __init__(
        self,
        name: str | os.PathLike[str],
        store: str | None = None,
        *,
        seed: int = 1,
        memory: int = 64 << 20,
        **keys: object,
    ) -> None:
        numbers = whole("seed", seed, 0, U64), whole("memory", memory, 0, U64)
        self._native = _core.KeyValue(named(name, keys), store, *numbers)

    def __repr__(self) -> str:
        return f"<KeyValue {self.store} on {self.name}{stands(self._native)}>"

    @property
    def store(self) -> str:
        """What keeps the records."""
        return self._native.store

    @property
    def found(self) -> bool:
        """Whether the store was on the drive before."""
        return self._native.found

    def get(self, key: bytes, default: bytes | None = None) -> bytes | None:
        """The value of a key, or `default`."""
        value = self._native.get([key])[0]
        return default if value is None else value

    def get_many(self, keys: Iterable[bytes]) -> list[bytes | None]:
        """The value of each of these keys, or None. Up to 256 are read at once.

        >>> store = KeyValue("mem:tlc", "kv", size="64M")
        >>> store.put({b"a": b"1"})
        >>> store.get_many([b"a", b"b"])
        [b'1', None]
        """
        return self._native.get(list(keys))

    def put(self, records: Mapping[bytes, bytes] | Iterable[tuple[bytes, bytes]]) -> None:
        """Gives keys their values, each by itself: where one fails, others may be done."""
        self._native.put(_pairs(records))

    def delete(self, key: bytes) -> bool:
        """Takes a key out. Gives whether it was there."""
        return self._native.delete([key])[0]

    def delete_many(self, keys: Iterable[bytes]) -> list[bool]:
        """Takes keys out. Gives of each whether it was there."""
        return self._native.delete(list(keys))

    def batch(
        self, writes: Mapping[bytes, bytes | None] | Iterable[tuple[bytes, bytes | None]]
    ) -> None:
        """Does all of these or none, also over a power cut: a value for each key, or None to
        take it out. Not of a "kv" store.

        >>> store = KeyValue("mem:tlc", "in-place", size="64M")
        >>> store.batch({b"a": b"1", b"b": b"2"})
        >>> store.batch({b"a": None, b"c": b"3"})
        >>> store.scan()
        [(b'b', b'2'), (b'c', b'3')]
        """
        self._native.batch(_pairs(writes))

    def scan(self, start: bytes = b"", count: int = 1 << 40) -> list[tuple[bytes, bytes]]:
        """Up to `count` records from `start` on, in the order of their keys. Of a "kv" store
        those behind `start` in the drive's own order."""
        return self._native.scan(start, whole("count", count, 0, U64))

    def __getitem__(self, key: bytes) -> bytes:
        value = self.get(key)
        if value is None:
            raise KeyError(key)
        return value

    def __setitem__(self, key: bytes, value: bytes) -> None:
        self._native.put([(key, value)])

    def __delitem__(self, key: bytes) -> None:
        if not self.delete(key):
            raise KeyError(key)

    def __contains__(self, key: bytes) -> bool:
        return self.get(key) is not None

    def __iter__(self) -> Iterator[bytes]:
        return iter([key for key, _ in self.scan()])

    def flush(self) -> None:
        """Makes durable what was done."""
        self._native.flush()

    def close(self) -> None:
        """Flushes, and shuts the drive down. A second time it does nothing."""
        self._native.close()


def _pairs(records: Mapping[bytes, V] | Iterable[tuple[bytes, V]]) -> list[tuple[bytes, V]]:
    """Records as a list of pairs."""
    return list(records.items()) if isinstance(records, Mapping) else list(records)
