"""Policies that are functions of Python's."""

import itertools
from typing import Any

import numpy as np
import pytest

import ssdkit
from ssdkit import Drive

SMALL = "mem:tlc,size=64M,groups=2,pus=2,pages=32,store=none"
BLOCK = 4096


def load(drive: Drive, writes: int, hot: float = 0.0) -> ssdkit.Counters:
    """Fills the drive, then writes over it: anywhere, or mostly a tenth of it. Gives what the
    second half of the writes took."""
    blocks, rng = drive.size // BLOCK, np.random.default_rng(1)
    drive.run("write", np.arange(blocks // 16) * 65536, 65536, qd=8)
    where = rng.integers(0, blocks, writes)
    where = np.where(rng.random(writes) < hot, where // 10, where)
    drive.run("write", where[: writes // 2] * BLOCK, qd=8)
    before = drive.counters()
    drive.run("write", where[writes // 2 :] * BLOCK, qd=8)
    return drive.counters() - before


def greedy(unit: int, chunk: Any, valid: Any, age: Any, wear: Any) -> Any:
    return chunk[np.argmin(valid)]


def cost_benefit(unit: int, chunk: Any, valid: Any, age: Any, wear: Any) -> Any:
    return chunk[np.argmax((valid.max() + 1 - valid) * age / (valid + 1))]


def test_greedy_of_pythons_is_greedy_to_the_digit() -> None:
    name = SMALL
    theirs, ours = Drive(name), Drive(name, victim=greedy)
    assert load(theirs, 60_000) == load(ours, 60_000)
    assert (theirs.wear() == ours.wear()).all()
    assert theirs.now == ours.now
    assert "python" in ours.name


def test_cost_benefit_beats_the_oldest_first() -> None:
    of = [
        load(drive, 80_000, hot=0.9).write_amplification
        for drive in (Drive(SMALL, victim=cost_benefit), Drive(SMALL + ",victim=fifo"))
    ]
    assert of[0] is not None and of[1] is not None and of[0] < 0.98 * of[1], of


def test_it_is_told_of_all_that_may_be_taken() -> None:
    seen: list[tuple[int, int]] = []
    sizes: set[int] = set()

    def several(unit: int, chunk: Any, valid: Any, age: Any, wear: Any) -> Any:
        assert chunk.dtype == valid.dtype == age.dtype == wear.dtype == np.int64
        assert len(chunk) == len(valid) == len(age) == len(wear) > 0
        assert (np.diff(chunk) > 0).all() and (age > 0).all() and len(set(age)) == len(age)
        assert (valid >= 0).all() and (wear >= 0).all()
        seen.append((unit, int(wear.sum())))
        sizes.add(len(chunk))
        return chunk[np.argsort(valid, kind="stable")][:3]

    one, three = Drive(SMALL, victim=greedy), Drive(SMALL, victim=several)
    asked = load(one, 40_000), load(three, 40_000)
    assert len({unit for unit, _ in seen}) == 4 and max(wear for _, wear in seen) > 0
    # Three at a time: asked a third as often.
    assert len(seen) < 0.6 * three.counters().collections
    assert asked[0] != asked[1]
    nothing = Drive(SMALL, victim=lambda *_: None)
    assert load(nothing, 40_000) == load(Drive(SMALL), 40_000)


#: What a policy may not give, of the chunks that it is given, and what is told of it.
NONSENSE: dict[str, tuple[Any, type[Exception], str]] = {
    "unknown": (
        lambda chunk: [10**6],
        ssdkit.UsageError,
        "chose 1000000 of unit .*, which is none",
    ),
    "below": (lambda chunk: -1, ssdkit.UsageError, "chose -1 of unit .*, which is none of those"),
    "huge": (lambda chunk: 2**70, ssdkit.UsageError, "chose 1180591620717411303424 of unit"),
    "twice": (lambda chunk: [chunk[0], chunk[0]], ssdkit.UsageError, "of unit . twice"),
    "endless": (lambda chunk: itertools.cycle(chunk), ssdkit.UsageError, "of unit . twice"),
    "text": (lambda chunk: "chunk", TypeError, "chose 'c' of unit ., which is a str"),
    "nan": (lambda chunk: np.nan, TypeError, "chose nan of unit ., which is a float"),
    "floats": (lambda chunk: chunk[:1] / 1.0, TypeError, "which is a float64"),
    "mask": (lambda chunk: chunk > 0, TypeError, "chose .*(True|False).* which is a bool"),
    "table": (lambda chunk: [[chunk[0]]], TypeError, r"chose \[.*\] of unit ., which is a list"),
    "nothing of the kind": (lambda chunk: object(), TypeError, "which is a object"),
    "true": (lambda chunk: True, TypeError, "chose True of unit ., which is a bool"),
    "long": (lambda chunk: ["x" * 10**6], TypeError, "chose 'x{59} of unit"),
}


@pytest.mark.parametrize("wrong", ["raises", *NONSENSE])
def test_what_it_raises_comes_out(wrong: str) -> None:
    calls = 0

    def policy(unit: int, chunk: Any, valid: Any, age: Any, wear: Any) -> Any:
        nonlocal calls
        calls += 1
        if calls == 20 and wrong == "raises":
            raise ZeroDivisionError("mine")
        if calls == 20:
            return NONSENSE[wrong][0](chunk)
        return greedy(unit, chunk, valid, age, wear)

    drive = Drive(SMALL, victim=policy)
    _, error, says = NONSENSE.get(wrong, (None, ZeroDivisionError, "mine"))
    with pytest.raises(error, match=says) as caught:
        load(drive, 60_000)
    if wrong != "raises":
        told = str(caught.value)
        assert told.startswith("the victim policy test_what_it_raises_comes_out.<locals>.policy ")
        assert "it is to give the number of one of the chunks that it was given" in told
    waiting, at = drive.waiting, calls
    assert waiting > 0 and at == 20
    # It goes on where it was: all complete.
    assert len(drive.advance()) >= waiting and drive.waiting == 0 and calls > at


class Nothing:
    """A policy that is an object."""

    def __call__(self, *of: Any) -> Any:
        return "no"

    def __iter__(self) -> Any:
        raise LookupError("its own")


def test_a_policy_without_a_name_is_told_by_its_class() -> None:
    with pytest.raises(TypeError, match="the victim policy Nothing chose 'n'"):
        load(Drive(SMALL, victim=Nothing()), 60_000)
    with pytest.raises(LookupError, match="its own"):
        nothing: Any = Nothing()
        load(Drive(SMALL, victim=lambda *_: nothing), 60_000)


@pytest.mark.parametrize(
    ("given", "error", "says"),
    [
        (None, TypeError, "gave None: .*"),
        (float("nan"), TypeError, "gave nan: placement: integers are wanted, not float64"),
        ("hot", TypeError, "gave 'hot': placement: integers are wanted"),
        ([0, 1], ssdkit.UsageError, r"gave \[0, 1\]: 2 values"),
        ([], ssdkit.UsageError, r"gave \[\]: 0 values"),
        ([[0, 1, 2]], ssdkit.UsageError, "one dimension is wanted, not 2"),
        ([[0], [1, 2]], TypeError, r"gave \[\[0\], \[1, 2\]\]"),
        ([0, 1, 256], ssdkit.UsageError, "placement: 256 cannot be: 0 to 255"),
        (-1, ssdkit.UsageError, "placement: -1 cannot be: 0 to 255"),
    ],
)
def test_placements_that_cannot_be_are_told(given: Any, error: type[Exception], says: str) -> None:
    def by_hand(offset: Any, length: Any) -> Any:
        return given

    drive = Drive(SMALL + ",streams=2", placement=by_hand)
    whose = r"the placement policy test_placements_.*by_hand "
    wanted = "; it is to give a stream, 0 to 255, or an array with one for each of 3 requests"
    with pytest.raises(error, match=f"{whose}.*{says}.*{wanted}"):
        drive.submit("write", [0, 4096, 8192])
    with pytest.raises(ssdkit.UsageError, match="length has 2 values, and there are 3 requests"):
        drive.submit("write", [0, 4096, 8192], [4096, 4096])
    assert drive.waiting == 0
    # One request, and none.
    if isinstance(given, list) and given:
        with pytest.raises((ssdkit.UsageError, TypeError), match="each of 1 requests"):
            drive.submit("write", 0)
    assert Drive(SMALL, placement=lambda offset, length: offset).run("write", []).id.size == 0


def test_its_own_drive_cannot_be_used_in_it() -> None:
    drive = Drive(SMALL, victim=lambda *_: drive.now)
    with pytest.raises(ssdkit.Error, match="none from its own policy"):
        load(drive, 60_000)
    with pytest.raises(TypeError):
        Drive(SMALL, victim="greedy")  # type: ignore[arg-type]


def test_the_policy_stays_over_a_cut() -> None:
    calls = []
    drive = Drive(SMALL, victim=lambda unit, chunk, valid, age, wear: calls.append(unit))
    load(drive, 40_000)
    before = len(calls)
    drive.cut()
    load(drive, 40_000)
    assert before > 0 and len(calls) > before


def test_placement_is_asked_once_a_batch() -> None:
    """Hot and cold apart: less is moved."""
    calls = []

    def by_address(offset: Any, length: Any) -> Any:
        calls.append(len(offset))
        assert offset.dtype == length.dtype == np.uint64
        return (offset < limit).astype(np.uint8)

    limit = 6 << 20
    name = SMALL + ",streams=2"
    apart, mixed = Drive(name, placement=by_address), Drive(name)
    for drive in (apart, mixed):
        load(drive, 80_000, hot=0.9)
    assert calls == [1024, 40_000, 40_000]
    moved = apart.counters().gc, mixed.counters().gc
    assert moved[0] < moved[1], moved
    # The same by an array; and one that fails comes out of submit, and nothing was taken.
    with pytest.raises(ZeroDivisionError):
        mixed.submit("write", 0, placement=lambda offset, length: 1 // 0)
    assert mixed.waiting == 0
