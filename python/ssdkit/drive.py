"""Drives whose requests are one's own, in virtual time."""

from __future__ import annotations

import enum
import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias, cast

import numpy as np
import numpy.typing as npt

from ssdkit import _core
from ssdkit._core import UsageError
from ssdkit._names import named, stands
from ssdkit._numbers import LATEST, U64, said, whole
from ssdkit._opened import Opened
from ssdkit.completions import Completions, Unsigned, compare

Integers: TypeAlias = npt.NDArray[np.int64]
Bytes: TypeAlias = bytes | bytearray | memoryview | npt.NDArray[np.uint8]

#: A victim policy: of a unit's closed chunks, which is collected next. It is given the unit's
#: number, and arrays, a row for each chunk: its number, its valid blocks, its age (how many
#: chunks were closed since), and its erases. It gives a chunk's number; or several, in their
#: order, and is not asked again for this unit until they are used up; or None, for the one
#: with the fewest valid blocks.
VictimPolicy: TypeAlias = Callable[
    [int, Integers, Integers, Integers, Integers], "int | Sequence[int] | Integers | None"
]

#: A placement policy: given the offsets and lengths of a batch's requests, in bytes, the stream
#: of each.
PlacementPolicy: TypeAlias = Callable[[Unsigned, Unsigned], npt.ArrayLike]


#: Requests inside a drive at once, at most.
MOST_QD = 65536


class Op(enum.IntEnum):
    """What a request asks for.

    A trim gives whole blocks up, which then read as zeros; parts of blocks stay as they are.

    >>> Op.of("write zeroes")
    <Op.WRITE_ZEROES: 4>
    """

    READ = 0
    WRITE = 1
    FLUSH = 2
    TRIM = 3
    WRITE_ZEROES = 4

    @classmethod
    def of(cls, op: int | str) -> Op:
        """The operation of a number or a name. Raises `UsageError` where there is none."""
        try:
            return cls[op.upper().replace(" ", "_")] if isinstance(op, str) else cls(op)
        except (KeyError, ValueError):
            names = ", ".join(one.name.lower().replace("_", " ") for one in cls)
            raise UsageError(f"{op!r} is no operation: one of {names}") from None


@dataclass(frozen=True)
class Counters:
    """What a drive has written and collected, in blocks of 4 KiB.

    The difference of two is what came between.
    """

    user: int
    """Programmed for the user."""
    gc: int
    """Programmed by collection."""
    padding: int
    """Programmed to fill rows."""
    metadata: int
    """Programmed for the target's own records."""
    parity: int
    """Programmed for parity."""
    folds: int
    """Folded out of an SLC cache."""
    absorbed: int
    """Written over while in the buffer; never programmed."""
    collections: int
    """Chunks collected."""
    moved: int
    """Read by collection."""
    erases: int
    """Chunks erased, for whatever cause."""
    retired: int
    """Chunks given up because a program failed."""
    lost: int
    """Blocks of which the newest copy could not be read."""
    refreshed: int
    """Of the chunks collected, those whose data had grown old or weak."""
    leveled: int
    """Of the chunks collected, those that were little worn."""
    free_chunks: int
    """Free chunks now; in a difference, how many more."""

    @property
    def write_amplification(self) -> float | None:
        """Blocks programmed for each of the user's, parity and folds too; None where there was none."""
        if not self.user:
            return None
        target = self.user + self.gc + self.padding + self.metadata
        return (target + self.parity + self.folds) / self.user

    def __sub__(self, before: Counters) -> Counters:
        names = self.__dataclass_fields__
        return Counters(**{name: getattr(self, name) - getattr(before, name) for name in names})


class Drive(Opened):
    """A drive in this process, in virtual time, whose requests are one's own.

    `name` is a `mem:` drive, or a drive file (`ssd:FILE`, or its path); keys of a `mem:` drive
    may be given as keywords: `Drive("mem:tlc", size="64M")`. `fault` takes fault rules, as
    the command line does. `seed` is that of the drive's policies and of fault rules; a drive
    file has its own from when it was made, and then it is that of fault rules alone. Time goes
    on only in `advance` and `run`, which release the interpreter's lock; the same calls give
    the same completions, to the bit.

    At most `qd` requests are inside the drive at once; all others wait in front of it, in the
    order of their times, up to 4194304 of them. `submit` refuses what is more, and takes then
    none. What the drive itself refuses for want of room waits, too, and its time counts on.

    With `stories` completions tell where their time went. `victim` is a `VictimPolicy`.
    `placement` is a `PlacementPolicy`, called once for each batch that does not say itself; the
    drive needs `streams=`.

    A drive file is shut down by `close`, or at the end of a `with`; else it is left as by a
    power cut. It stays this drive's when it is renamed.

    A drive is used by the process that opened it. In one that was forked from that all calls
    raise `Error`, and the end of a `with`, or of the object, does nothing.

    Raises `DriveError` where no such drive can be, `UsageError` for anything else that cannot.

    >>> import numpy as np
    >>> with Drive("mem:tlc", size="64M") as drive:
    ...     offsets = np.arange(1000) * 4096
    ...     written = drive.run("write", offsets, 4096, qd=8)
    ...     read = drive.run("read", offsets[::-1], 4096, qd=1)
    >>> len(read), set(read.status.tolist())
    (1000, {'success'})
    >>> bool(np.median(read.latency) > 10_000)
    True
    """

    _native: _core.Drive

    def __init__(
        self,
        name: str | os.PathLike[str],
        *,
        seed: int = 1,
        qd: int | None = None,
        stories: bool = False,
        victim: VictimPolicy | None = None,
        placement: PlacementPolicy | None = None,
        fault: str | Sequence[str] = (),
        **keys: object,
    ) -> None:
        if victim is not None and not callable(victim):
            raise TypeError(
                "victim: a function of the unit and its chunks; names go in the drive's"
            )
        rules = [fault] if isinstance(fault, str) else list(fault)
        options = {"fault": rules} if rules else None
        seed = whole("seed", seed, 0, U64)
        qd = None if qd is None else whole("qd", qd, 1, MOST_QD)
        self._native = _core.Drive(named(name, keys), seed, qd, stories, victim, options)
        self._placement = placement

    def __repr__(self) -> str:
        return f"<Drive {self.name}{stands(self._native)}>"

    @property
    def size(self) -> int:
        """Bytes that it has."""
        return self._native.shape[0]

    @property
    def max_bytes(self) -> int:
        """Bytes of its longest read or write."""
        return self._native.shape[1]

    @property
    def keeps_data(self) -> bool:
        """Whether what is written can be read (`store=memory`)."""
        return self._native.shape[3] == 4096

    @property
    def config(self) -> dict[str, Any]:
        """All of its numbers, as `ssdkit info --json` has them."""
        return cast("dict[str, Any]", self._native.config())

    @property
    def waiting(self) -> int:
        """Requests that were submitted and have not completed."""
        return self._native.out[0]

    @property
    def inside(self) -> int:
        """Those of them that the drive has, `qd` at most."""
        return self._native.out[1]

    @property
    def qd(self) -> int:
        """How many requests may be inside at once: 1 to 65536. May be set at any time."""
        return self._native.qd

    @qd.setter
    def qd(self, qd: int) -> None:
        self._native.set_qd(whole("qd", qd, 1, MOST_QD))

    def submit(
        self,
        op: npt.ArrayLike,
        offset: npt.ArrayLike = 0,
        length: npt.ArrayLike = 4096,
        *,
        at: npt.ArrayLike | None = None,
        fua: npt.ArrayLike = False,
        placement: npt.ArrayLike | PlacementPolicy | None = None,
        data: Bytes | None = None,
        keep: bool = False,
    ) -> Unsigned:
        """Gives requests to the drive, and their numbers back. No time passes.

        Each of `op` (an `Op`, its name, or an array of small integers), `offset`, `length`
        (bytes, multiples of 512; of 4096 where the drive keeps no data), `at`, `fua` and
        `placement` is one value for all requests, or an array with one for each.

        `at` is when a request starts, in ns of drive time; its latency counts from then. Those
        of one time start in their order, and one whose time is over starts at once. Without
        `at` a request starts when fewer than `qd` are inside, and its latency counts from then.

        `data` has the bytes of all writes, one after the other; without, they write zeros. With
        `keep`, completions have what is read. What cannot be served is a completion that failed.

        Raises `UsageError` where arrays do not fit each other, or too many would wait; then no
        request was taken.

        >>> drive = Drive("mem:tlc", size="64M")
        >>> drive.submit("write", [0, 4096], data=bytes([7] * 8192))
        array([0, 1], dtype=uint64)
        >>> drive.submit("read", 4096, 512, at=1_000_000, keep=True)
        array([2], dtype=uint64)
        >>> done = drive.advance()
        >>> done.id.tolist(), bytes(done.data_of(2)[:3]), drive.now > 1_000_000
        ([0, 1, 2], b'\\x07\\x07\\x07', True)
        """
        rows, columns, payload = self._asked(op, offset, length, at, fua, placement, data)
        first = self._native.submit(rows, columns, payload, keep)
        return np.arange(first, first + rows, dtype=np.uint64)

    def _asked(
        self,
        op: npt.ArrayLike,
        offset: npt.ArrayLike,
        length: npt.ArrayLike,
        at: npt.ArrayLike | None,
        fua: npt.ArrayLike,
        placement: npt.ArrayLike | PlacementPolicy | None,
        data: Bytes | None,
    ) -> tuple[int, dict[str, Any], npt.NDArray[np.uint8] | None]:
        """How many requests these are, their columns, and what they write."""
        ops = _ops(op)
        offsets, lengths = _column("offset", offset), _column("length", length)
        times = None if at is None else _column("at", at)
        flags = _column("fua", fua, np.bool_)
        arrays = [ops, offsets, lengths, flags] + ([] if times is None else [times])
        rows = max((len(one) for one in arrays if isinstance(one, np.ndarray)), default=-1)
        of_stream = self._placement if placement is None else placement
        streams: Any = 0
        if callable(of_stream):
            rows = 1 if rows < 0 else rows
            whole_ = _whole("offset", offsets, rows), _whole("length", lengths, rows)
            streams = _streams(of_stream, of_stream(*whole_), rows)
        elif of_stream is not None:
            streams = _column("placement", of_stream, np.uint8)
        if isinstance(streams, np.ndarray):
            rows = max(rows, len(streams))
        columns = {
            "op": ops,
            "offset": offsets,
            "length": lengths,
            "fua": flags,
            "placement": streams,
            "at": times,
        }
        return 1 if rows < 0 else rows, columns, None if data is None else _payload(data)

    def advance(self, *, to: int | None = None, completions: int | None = None) -> Completions:
        """Lets time go on: until all requests have completed; or `to` a time, in ns; or until
        so many `completions`. Gives what completed; of one time, all that did.

        A `KeyboardInterrupt`, or what a policy raises, ends it. What had completed by then is
        given by the next call.

        >>> drive = Drive("mem:tlc", size="64M")
        >>> _ = drive.submit("write", [0, 4096, 8192], at=[0, 500_000, 900_000])
        >>> done = drive.advance(to=600_000)
        >>> done.id.tolist(), drive.now, drive.waiting
        ([0, 1], 600000, 1)
        >>> drive.advance(completions=1).id.tolist()
        [2]
        """
        if to is not None and completions is not None:
            raise UsageError("to and completions both say where to stop: give one of them")
        to = None if to is None else whole("to", to, 0, LATEST)
        completions = None if completions is None else whole("completions", completions, 0, U64)
        return Completions(self._native.advance(to, completions))

    def run(
        self,
        op: npt.ArrayLike,
        offset: npt.ArrayLike = 0,
        length: npt.ArrayLike = 4096,
        *,
        qd: int | None = None,
        at: npt.ArrayLike | None = None,
        fua: npt.ArrayLike = False,
        placement: npt.ArrayLike | PlacementPolicy | None = None,
        data: Bytes | None = None,
        keep: bool = False,
        expect: Bytes | None = None,
    ) -> Completions:
        """Submits requests, and lets time go on until all have completed: in a closed loop of
        `qd` (of this call alone; without, of the drive's), or with `at` in an open one. Takes
        what `submit` does. No other thread's call comes between.

        `expect` has the bytes that the reads must give, one after the other: what was written, of
        a drive that keeps data. Raises `Error` where one gives other bytes, or failed.

        >>> drive = Drive("mem:tlc", size="64M", stories=True)
        >>> done = drive.run("write", np.arange(64) * 65536, 65536, qd=4)
        >>> sum(ns.sum() for ns in done.stories.values()) == done.latency.sum()
        np.True_
        >>> _ = drive.run("write", 0, data=b"a" * 4096)
        >>> drive.run("read", [0, 4096], expect=b"a" * 4096 + b"b" * 4096)
        Traceback (most recent call last):
        ssdkit.Error: request 66 read other bytes than were expected, from its byte 0 on
        """
        qd = None if qd is None else whole("qd", qd, 1, MOST_QD)
        rows, columns, payload = self._asked(op, offset, length, at, fua, placement, data)
        wanted = None if expect is None else _payload(expect)
        keep = keep or wanted is not None
        first, all_of_it = self._native.run(rows, columns, payload, keep, qd)
        done = Completions(all_of_it)
        if wanted is not None:
            reads = np.broadcast_to(np.equal(columns["op"], Op.READ), (rows,))
            compare(done, first, reads, wanted)
        return done

    def flush(self) -> Completions:
        """Makes durable what has completed: a flush, and all that waits before it."""
        return self.run(Op.FLUSH)

    def trim(self, offset: npt.ArrayLike, length: npt.ArrayLike) -> Completions:
        """Gives ranges up: whole blocks of 4 KiB read as zeros from then on."""
        return self.run(Op.TRIM, offset, length)

    def counters(self) -> Counters:
        """What it has written and collected so far.

        >>> drive = Drive("mem:tlc", size="64M")
        >>> _ = drive.run("write", np.arange(256) * 65536 % drive.size, 65536)
        >>> drive.counters().user
        4096
        """
        return Counters(**self._native.counters())

    def wear(self) -> npt.NDArray[np.uint32]:
        """Erases of each chunk that was not bad from the factory."""
        return self._native.wear()

    def state_hash(self) -> int:
        """A hash of the drive's state: equal where two runs were. Reads its whole map."""
        return self._native.state_hash()

    def cut(self) -> Completions:
        """Cuts the power, and switches it on again: the drive recovers what it had made durable.

        Gives the requests that were lost, as "aborted". Drive time begins anew; `now` is what
        recovery took. What was flushed is there, or written with `fua`; and all that completed
        where the drive has `cache="protected"`. Of all else a block is as one of its writes
        left it.

        >>> drive = Drive("mem:tlc", size="64M")
        >>> _ = drive.run("write", 0, data=b"a" * 4096, fua=True)
        >>> drive.submit("write", 4096, data=b"b" * 4096)
        array([1], dtype=uint64)
        >>> drive.cut().status.tolist()
        ['aborted']
        >>> bytes(drive.run("read", 0, keep=True).data[:3])
        b'aaa'
        """
        return Completions(self._native.cut())

    def close(self) -> None:
        """Shuts the drive down, and gives its memory up. Requests that wait are dropped. A
        second time it does nothing."""
        self._native.close()


def _ops(op: npt.ArrayLike) -> Any:
    """Operations as the native half takes them."""
    if isinstance(op, int | str):
        return int(Op.of(op))
    array = np.asarray(op)
    if array.dtype.kind in "UO" and array.ndim == 1:
        array = np.array([Op.of(one) for one in array.tolist()], np.uint8)
    return _column("op", array, np.uint8)


def _column(what: str, values: npt.ArrayLike, kind: type[np.generic] = np.uint64) -> Any:
    """One value, or an array of one dimension; of `kind`, without a copy where it is that and
    lies as the native half reads it. Truth values are bytes there, of which any but 0 is true."""
    array = np.asarray(values)
    if (
        array.dtype == object
        and kind is not np.bool_
        and all(isinstance(one, int) for one in array.flat)
    ):
        # Too large for any of NumPy's kinds.
        for one in array.flat:
            whole(what, one, 0, int(np.iinfo(cast("type[np.integer[Any]]", kind)).max))
    if array.dtype.kind not in ("b" if kind is np.bool_ else "iu") and array.size:
        wanted = "truth values" if kind is np.bool_ else "integers"
        raise TypeError(f"{what}: {wanted} are wanted, not {array.dtype}")
    if array.ndim > 1:
        raise UsageError(f"{what}: one dimension is wanted, not {array.ndim}")
    if kind is not np.bool_ and array.dtype != kind and array.size:
        most = int(np.iinfo(cast("type[np.integer[Any]]", kind)).max)
        least, highest = int(array.min()), int(array.max())
        if least < 0 or highest > most:
            wrong = least if least < 0 else highest
            raise UsageError(f"{what}: {wrong} cannot be: 0 to {most}")
    if array.ndim == 0:
        return array.item()
    plain = np.ascontiguousarray(array, dtype=kind)
    plain = plain if plain.flags.aligned else plain.copy()
    return plain.view(np.uint8) if kind is np.bool_ else plain


def _streams(policy: PlacementPolicy, given: Any, rows: int) -> Any:
    """What a placement policy gave, as a column. Raises what that is and what it is to be."""
    name = getattr(policy, "__qualname__", type(policy).__qualname__)
    wanted = f"it is to give a stream, 0 to 255, or an array with one for each of {rows} requests"
    try:
        streams = _column("placement", "nothing" if given is None else given, np.uint8)
        if isinstance(streams, np.ndarray) and len(streams) != rows:
            raise UsageError(f"{len(streams)} values")
    except UsageError as e:
        raise UsageError(f"the placement policy {name} gave {said(given)}: {e}; {wanted}") from None
    except (TypeError, ValueError) as e:
        raise TypeError(f"the placement policy {name} gave {said(given)}: {e}; {wanted}") from None
    return streams


def _whole(what: str, column: Any, rows: int) -> Unsigned:
    """An array of so many rows."""
    if isinstance(column, np.ndarray) and len(column) != rows:
        raise UsageError(f"{what} has {len(column)} values, and there are {rows} requests")
    return np.broadcast_to(np.asarray(column, np.uint64), (rows,))


def _payload(data: Bytes) -> npt.NDArray[np.uint8]:
    """The bytes of data, in a row."""
    array = data if isinstance(data, np.ndarray) else np.frombuffer(data, np.uint8)
    if array.dtype != np.uint8:
        raise TypeError(f"data: bytes are wanted, or an array of uint8, not of {array.dtype}")
    return np.ascontiguousarray(array).reshape(-1)
