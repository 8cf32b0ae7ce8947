"""Drives whose requests are one's own."""

import json
import os
import signal
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import ssdkit
from ssdkit import Drive, Op

SMALL = "mem:tlc,size=16M,groups=2,pus=2,pages=16"
BLOCK = 4096


@pytest.fixture(autouse=True)
def alarms_are_interrupts() -> Iterator[None]:
    """What an alarm does here is what Ctrl-C does."""
    before = signal.signal(signal.SIGALRM, signal.default_int_handler)
    yield
    signal.signal(signal.SIGALRM, before)


def columns(done: ssdkit.Completions) -> list[list[Any]]:
    return [column.tolist() for column in (done.id, done.code, done.submitted, done.completed)]


def mixed(seed: int, rows: int, blocks: int) -> dict[str, Any]:
    """Requests of all kinds anywhere."""
    rng = np.random.default_rng(seed)
    return {
        "op": rng.choice(5, rows, p=[0.45, 0.45, 0.02, 0.05, 0.03]).astype(np.uint8),
        "offset": rng.integers(0, blocks - 4, rows) * BLOCK,
        "length": rng.integers(1, 5, rows) * BLOCK,
        "fua": rng.random(rows) < 0.05,
    }


@pytest.mark.parametrize("qd", [1, 4, 64])
def test_the_same_requests_give_what_the_library_gives(qd: int) -> None:
    """A bench is a load of the library's own; the same requests from arrays end alike."""
    name, ios = "mem:tlc,size=64M,store=none", 12_000
    report = ssdkit.bench(name, rw="write", bs="4k", qd=qd, ios=ios, precondition="none")
    drive = Drive(name)
    done = drive.run("write", np.arange(ios) % (drive.size // BLOCK) * BLOCK, BLOCK, qd=qd)
    latency = report["latency_ns"]
    assert latency["max"] == done.latency.max()
    assert latency["min"] == done.latency.min()
    assert latency["mean"] == pytest.approx(done.latency.mean(), abs=0.1)
    assert report["seconds"] * 1e9 == pytest.approx(int(done.completed.max()), abs=1)
    amplification = report["write_amplification"]["total"]
    assert amplification == drive.counters().write_amplification


@pytest.mark.parametrize("keys", [{}, {"shards": 2}, {"cache": "protected"}, {"store": "none"}])
def test_however_it_is_cut_in_pieces(keys: dict[str, Any]) -> None:
    one, other = Drive(SMALL, qd=16, **keys), Drive(SMALL, qd=16, **keys)
    asked = mixed(3, 4000, one.size // BLOCK)
    at = np.arange(4000) * 15_000
    whole = one.run(**asked, at=at)
    rng, parts, given = np.random.default_rng(4), [], 0
    while given < 4000 or other.waiting:
        more = min(4000, given + int(rng.integers(1, 300)))
        part = {key: column[given:more] for key, column in asked.items()}
        other.submit(**part, at=at[given:more])
        given = more
        # Not past what was not given yet.
        to = int(at[more - 1]) if more < 4000 else None
        parts.append(other.advance(to=to))
    together: list[list[Any]] = [[], [], [], []]
    for pieces in map(columns, parts):
        for all_of_it, more_of_it in zip(together, pieces, strict=True):
            all_of_it += more_of_it
    assert together == columns(whole)
    assert one.state_hash() == other.state_hash()


def test_data_is_what_was_written_last() -> None:
    drive, rng = Drive(SMALL, qd=1), np.random.default_rng(5)
    model = np.zeros(64 * 512, np.uint8)
    for _ in range(30):
        ops = rng.choice([Op.READ, Op.WRITE, Op.WRITE_ZEROES], 40).astype(np.uint8)
        first, sectors = rng.integers(0, 60, 40), rng.integers(1, 5, 40)
        wrote, expected = [], []
        for op, at, count in zip(ops, first, sectors, strict=True):
            part = model[at * 512 : (at + count) * 512]
            if op == Op.READ:
                expected.append(part.copy())
            elif op == Op.WRITE:
                part[:] = rng.integers(0, 256, len(part), np.uint8)
                wrote.append(part.copy())
            else:
                part[:] = 0
        data = np.concatenate(wrote)
        expect = np.concatenate(expected)
        done = drive.run(ops, first * 512, sectors * 512, data=data, expect=expect)
        assert done.ok.all()
        assert np.array_equal(done.data, expect)
        rows = [done.data_of(row) for row in range(len(done)) if ops[row] == Op.READ]
        assert all(np.array_equal(*both) for both in zip(rows, expected, strict=True))


def test_other_bytes_than_expected_are_told() -> None:
    drive = Drive(SMALL)
    drive.run("write", [0, BLOCK], data=b"a" * 2 * BLOCK)
    drive.run("read", [BLOCK, 0], expect=b"a" * 2 * BLOCK)
    wrong = b"a" * BLOCK + b"a" * 99 + b"b" * (BLOCK - 99)
    with pytest.raises(ssdkit.Error, match="request 5 read other bytes .* from its byte 99 on"):
        drive.run("read", [BLOCK, 0], expect=wrong)
    with pytest.raises(ssdkit.UsageError, match="gave 4096 bytes, and 5000 were"):
        drive.run("read", 0, expect=b"a" * 4096 + b"b" * 904)
    # What could not be read is told, whatever is expected.
    for expect in (b"", b"a" * BLOCK, bytes(BLOCK)):
        with pytest.raises(ssdkit.Error, match="request [0-9]+ read nothing: address out of range"):
            drive.run("read", drive.size, expect=expect)
    with pytest.raises(ssdkit.Error, match="request 11 read nothing: address out of range"):
        drive.run([Op.WRITE, Op.READ], [0, drive.size], data=b"a" * BLOCK, expect=b"")
    done = drive.run(
        [Op.WRITE, Op.READ], [drive.size, BLOCK], data=b"b" * BLOCK, expect=b"a" * BLOCK
    )
    assert done.status[done.by_id()].tolist() == ["address out of range", "success"]
    # A medium that loses what it has is found out, or says so.
    bad = Drive(SMALL, fault="medium:bitrot,probability=1", qd=1)
    bad.run("write", np.arange(512) * BLOCK, data=b"a" * 512 * BLOCK)
    bad.flush()
    read = bad.run("read", np.arange(512) * BLOCK, keep=True)
    same = [bytes(read.data_of(row)) == b"a" * BLOCK for row in range(512)]
    assert not all(same) or not read.ok.all()


def test_what_was_durable_survives_a_cut_and_nothing_else_is_invented() -> None:
    for keys in ({}, {"cache": "protected"}, {"shards": 2}, {"parity": 4}):
        drive, rng = (
            Drive("mem:tlc,size=64M,groups=4,pus=2,pages=16", qd=8, **keys),
            (np.random.default_rng(6)),
        )
        blocks = 256
        durable, newest = np.zeros(blocks, np.uint32), np.zeros(blocks, np.uint32)
        maybe: list[set[int]] = [{0} for _ in range(blocks)]
        stamp = 0
        for _ in range(6):
            for _ in range(5):
                which = rng.permutation(blocks)[:60]
                stamps = np.arange(stamp + 1, stamp + 61, dtype=np.uint32)
                stamp += 60
                data = np.repeat(stamps, BLOCK // 4).view(np.uint8)
                drive.run("write", which * BLOCK, data=data)
                newest[which] = stamps
                for block, value in zip(which, stamps, strict=True):
                    maybe[block].add(int(value))
                if rng.random() < 0.3 or keys.get("cache"):
                    drive.flush()
                    durable = newest.copy()
                    maybe = [{int(value)} for value in durable]
            inside = rng.permutation(blocks)[:60]
            stamps = np.arange(stamp + 1, stamp + 61, dtype=np.uint32)
            stamp += 60
            numbers = drive.submit(
                "write", inside * BLOCK, data=np.repeat(stamps, BLOCK // 4).view(np.uint8)
            )
            ended = drive.advance(completions=20)
            for block, value in zip(inside, stamps, strict=True):
                maybe[block].add(int(value))
            lost = drive.cut()
            assert set(lost.status.tolist()) == {"aborted"}
            assert sorted([*ended.id.tolist(), *lost.id.tolist()]) == numbers.tolist()
            there = drive.run("read", np.arange(blocks) * BLOCK, keep=True)
            assert there.ok.all()
            values = there.data.view(np.uint32).reshape(blocks, -1)
            assert (values == values[:, :1]).all(), "no block is torn"
            order = there.id - there.id.min()
            for block, value in zip(order.tolist(), values[:, 0].tolist(), strict=True):
                assert value in maybe[block], (keys, block)
                newest[block] = value
            durable = newest.copy()
            maybe = [{int(value)} for value in durable]


def test_a_drive_file_is_found_again(tmp_path: Path) -> None:
    import subprocess
    import sys

    path = str(tmp_path / "a.ssd")
    created = getattr(ssdkit, "create", None)
    if created is None:
        pytest.skip("nothing makes drive files here")
    created(path, "tlc", size="64M")
    with Drive(path) as drive:
        drive.run("write", 0, data=b"x" * BLOCK)
        assert f"ssd:{path}" in drive.name or path in drive.name
    with Drive(f"ssd:{path}") as drive:
        assert bytes(drive.run("read", 0, keep=True).data) == b"x" * BLOCK
        drive.run("write", BLOCK, data=b"y" * BLOCK, fua=True)
        drive.submit("write", 0, data=b"z" * BLOCK)
        assert drive.cut().status.tolist() == ["aborted"]
        read = drive.run("read", [0, BLOCK], qd=1, keep=True)
        assert bytes(read.data) == b"x" * BLOCK + b"y" * BLOCK
    copy = Drive(f"ssd:{path},copy=yes")
    copy.run("write", 0, data=b"w" * BLOCK, fua=True)
    copy.cut()
    assert bytes(copy.run("read", 0, keep=True).data) == b"w" * BLOCK
    # One that is not closed is as after a power cut.
    code = f"import ssdkit; d = ssdkit.Drive({path!r}); d.run('write', 0, data=b'v'*4096, fua=True)"
    subprocess.run([sys.executable, "-c", code], check=True, timeout=60)
    with Drive(path) as drive:
        assert bytes(drive.run("read", 0, keep=True).data) == b"v" * BLOCK


def test_a_drive_file_that_went_elsewhere_is_found_after_a_cut(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    there = tmp_path / "there"
    there.mkdir()
    monkeypatch.chdir(there)
    ssdkit.create("a.ssd", "tlc", size="64M")
    with Drive("a.ssd") as drive:
        monkeypatch.chdir(tmp_path)
        goes: list[Callable[[], object]] = [
            lambda: None,
            lambda: (there / "a.ssd").rename("b.ssd"),
            # Another file has its name.
            lambda: ssdkit.create(there / "a.ssd", "tlc", size="64M"),
            lambda: there.rename("elsewhere"),
        ]
        for n, go in enumerate(goes):
            drive.run("write", n * BLOCK, data=bytes([n]) * BLOCK, fua=True)
            go()
            drive.cut()
            drive.run("read", n * BLOCK, expect=bytes([n]) * BLOCK)
        assert drive.name == "ssd:a.ssd"
    with Drive(Path("b.ssd")) as drive:
        expect = np.repeat(np.arange(4, dtype=np.uint8), BLOCK)
        drive.run("read", np.arange(4) * BLOCK, expect=expect)
        # What was removed ends with its power.
        Path("b.ssd").unlink()
        with pytest.raises(ssdkit.Error, match="somebody deleted the file"):
            drive.cut()
        assert drive.closed


def test_a_path_that_leads_to_no_drive_is_told_as_with_its_scheme(tmp_path: Path) -> None:
    path = tmp_path / "a.ssd"
    ssdkit.create(path, "tlc", size="16M", groups=2, pus=2, pages=16)
    damaged = bytearray(path.read_bytes())
    damaged[:512] = os.urandom(512)
    for name, made, words in [
        ("none.ssd", None, "no such file; make it with `ssdkit create`"),
        ("junk.ssd", b"x" * 100_000, "this is not a drive file"),
        ("empty.ssd", b"", "the file is empty, and so no drive file"),
        ("damaged.ssd", damaged, "this is not a drive file"),
        ("directory.ssd", "directory", "a drive file is a regular file"),
    ]:
        at = tmp_path / name
        if isinstance(made, bytes | bytearray):
            at.write_bytes(made)
        elif made:
            at.mkdir()
        for opens in (Drive, ssdkit.KeyValue):
            told = []
            for one in (str(at), at, f"ssd:{at}", f"file:{at}"):
                with pytest.raises(ssdkit.UsageError, match=words) as raised:
                    opens(one)
                told.append((type(raised.value), str(raised.value)))
            assert len(set(told)) == 1, told
    # Keys are those of other files.
    with pytest.raises(ssdkit.UsageError, match="take a mem: drive or a drive file"):
        Drive(f"{tmp_path}/junk.ssd,direct=false")


def test_a_path_is_one_whatever_it_is_called(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    for name in ("a.ssd", "b", "mem:tlc"):
        ssdkit.create(Path(tmp_path, name), "tlc", size="16M", groups=2, pus=2, pages=16)
        for path in (Path(name), Path(tmp_path, name)):
            with Drive(path) as drive:
                assert drive.run("write", 0, data=b"a" * BLOCK).ok.all()
        with Drive(Path(name)) as drive:
            drive.run("read", 0, expect=b"a" * BLOCK)


def test_open_loops_count_from_their_times() -> None:
    drive = Drive(SMALL, qd=2)
    done = drive.run("write", np.zeros(100, np.int64), at=np.full(100, 5_000))
    assert (done.submitted == 5_000).all() and done.latency.max() > done.latency.min()
    # In the order of their times, whatever that of the rows.
    numbers = drive.submit("read", [0, 0, 0], at=drive.now + np.array([900_000, 0, 400_000]))
    assert drive.advance(completions=1).id.tolist() == [numbers[1]]
    assert drive.advance(to=drive.now + 600_000).id.tolist() == [numbers[2]]
    assert drive.advance().id.tolist() == [numbers[0]]
    # Time passes with nothing to do, too.
    now = drive.now
    assert len(drive.advance(to=now + 10**9)) == 0 and drive.now == now + 10**9
    assert len(drive.advance(to=5)) == 0 and drive.now == now + 10**9


def test_the_depth_is_kept_and_may_change() -> None:
    drive = Drive(SMALL, qd=3)
    assert drive.qd == 3
    drive.submit("write", np.arange(100) * BLOCK, at=0)
    drive.advance(completions=1)
    assert drive.inside == 3 and drive.waiting == 99
    drive.qd = 64
    drive.advance(completions=10)
    assert drive.inside == 64 and drive.waiting == 89
    assert len(drive.advance()) > 0 and drive.waiting == 0
    # That of a call is of this call.
    done = drive.run("write", np.arange(10) * BLOCK, qd=1)
    assert (done.submitted[1:] >= done.completed[:-1]).all() and drive.qd == 64
    with pytest.raises(ssdkit.UsageError, match="qd: 0 cannot be"):
        drive.run("write", 0, qd=0)
    with pytest.raises(ssdkit.UsageError, match="the writes are of 4096 bytes"):
        drive.run("write", 0, qd=1, data=b"1")
    assert drive.qd == 64 and drive.waiting == 0
    for wrong in (0, 65_537):
        with pytest.raises(ssdkit.UsageError, match=f"qd: {wrong} cannot be: 1 to 65536"):
            drive.qd = wrong


def test_stories_sum_to_latencies() -> None:
    drive = Drive(SMALL, stories=True, qd=8)
    for _ in range(3):
        done = drive.run(**mixed(7, 2000, drive.size // BLOCK))
        total = np.sum(list(done.stories.values()), axis=0, dtype=np.uint64)
        assert np.array_equal(total, done.latency)
        assert "array" in done.stories
    with pytest.raises(ssdkit.UsageError, match="stories"):
        Drive(SMALL, stories=True, cache="protected")


def test_statuses_are_words() -> None:
    drive = Drive(SMALL)
    done = drive.run("read", [drive.size, 0, 0], [BLOCK, 100, BLOCK])
    told = done.status[done.by_id()].tolist()
    assert told == ["address out of range", "invalid field in command", "success"]
    assert done.ok.tolist() == [word == "success" for word in done.status]
    assert repr(done) == "<Completions of 3 requests, 2 failed>"
    failing = Drive(SMALL, fault="above:read,probability=1")
    assert failing.run("read", 0).ok.tolist() == [False]


def test_columns_are_memory_of_their_own() -> None:
    drive = Drive(SMALL)
    done = drive.run("write", np.arange(10) * BLOCK)
    for column in (done.id, done.code, done.submitted, done.completed):
        assert column.flags.writeable and column.flags.c_contiguous and column.base is not None
    kept = done.completed.copy()
    drive.run("write", np.arange(10) * BLOCK)
    drive.close()
    assert np.array_equal(done.completed, kept)


def askew(array: np.ndarray[Any, Any], how: str) -> np.ndarray[Any, Any]:
    """The same values as they lie in memory that others laid out."""
    if how == "strided":
        return np.repeat(array, 3)[::3]
    if how == "backwards":
        return array[::-1].copy()[::-1]
    if how == "misaligned":
        return np.frombuffer(b"?" + array.tobytes(), array.dtype, offset=1)
    if how == "field":
        table = np.zeros(len(array), np.dtype([("before", "u1"), ("it", array.dtype)]))
        table["it"] = array
        return table["it"]
    return array.astype(array.dtype.newbyteorder())


@pytest.mark.parametrize("how", ["strided", "backwards", "misaligned", "field", "other bytes"])
def test_arrays_are_taken_however_they_lie(how: str) -> None:
    one, other = Drive(SMALL), Drive(SMALL)
    asked = mixed(5, 500, one.size // BLOCK)
    for key in "offset", "length":
        asked[key] = asked[key].astype(np.uint64)
    asked |= {"at": np.arange(500, dtype=np.uint64) * 9000, "placement": np.zeros(500, np.uint8)}
    written = int(asked["length"][asked["op"] == Op.WRITE].sum())
    asked["data"] = np.resize(np.arange(251, dtype=np.uint8), written)
    plain = one.run(**asked)
    laid_out: dict[str, Any] = {key: askew(column, how) for key, column in asked.items()}
    laid = other.run(**laid_out)
    assert columns(plain) == columns(laid)
    assert one.state_hash() == other.state_hash()


def test_any_byte_but_zero_is_true() -> None:
    drives = [Drive(SMALL) for _ in range(3)]
    truth = np.array([0, 1, 2, 255], np.uint8).view(np.bool_)
    flags: list[Any] = [truth, [False, True, True, True], False]
    at = np.arange(4) * BLOCK
    by_bytes, by_truth, by_none = (
        columns(drive.run("write", at, fua=fua)) for drive, fua in zip(drives, flags, strict=True)
    )
    assert by_bytes == by_truth != by_none


@pytest.mark.parametrize(
    ("arguments", "error", "words"),
    [
        ({"op": "erase"}, ssdkit.UsageError, "'erase' is no operation: one of read, write"),
        ({"op": 9}, ssdkit.UsageError, "9 is no operation"),
        ({"op": np.array([0, 7], np.uint8)}, ssdkit.UsageError, "request 1: 7 is no operation"),
        ({"op": 0, "offset": -4096}, ssdkit.UsageError, "offset: -4096 cannot be: 0 to"),
        ({"op": 0, "offset": 0.5}, TypeError, "offset: integers are wanted, not float64"),
        ({"op": 0, "offset": "4k"}, TypeError, "offset: integers are wanted"),
        ({"op": 0, "offset": [[1]]}, ssdkit.UsageError, "one dimension"),
        (
            {"op": [0, 0], "offset": [1, 2, 3]},
            ssdkit.UsageError,
            "op has 2 values, and there are 3",
        ),
        ({"op": 0, "fua": 1}, TypeError, "fua: truth values"),
        ({"op": 0, "placement": 256}, ssdkit.UsageError, "placement: 256 cannot be: 0 to 255"),
        (
            {"op": 1, "data": b"123"},
            ssdkit.UsageError,
            "the writes are of 4096 bytes, and the data",
        ),
        ({"op": 1, "data": np.zeros(4)}, TypeError, "data: bytes are wanted"),
        ({"op": 0, "offset": np.zeros(4194305, int)}, ssdkit.UsageError, "none was taken"),
    ],
)
def test_what_cannot_be_is_refused(
    arguments: dict[str, Any], error: type[Exception], words: str
) -> None:
    drive = Drive(SMALL)
    with pytest.raises(error, match=words):
        drive.submit(**arguments)
    assert drive.waiting == 0 and drive.submit("read").tolist() == [0]


def test_what_can_be_no_drive_is_refused(tmp_path: Path) -> None:
    for name, error, words in [
        ("mem:nothing", ssdkit.DriveError, "nothing"),
        ("mem:tlc,size=64M,flavour=1", ssdkit.DriveError, "flavour"),
        ("nbd:/nowhere", ssdkit.UsageError, "take a mem: drive or a drive file"),
        ("mem:tlc,size=64M,target=kv", ssdkit.UsageError, "no blocks"),
        (str(tmp_path / "none.ssd"), ssdkit.Error, "none.ssd"),
    ]:
        with pytest.raises(error, match=words):
            Drive(name)
    with pytest.raises(ssdkit.DriveError, match="flavour"):
        Drive("mem:tlc", size="64M", flavour=1)
    with pytest.raises(ssdkit.UsageError, match="keys are for mem: drives"):
        Drive("ssd:a.ssd", size="64M")
    with pytest.raises(TypeError):
        Drive(7)  # type: ignore[arg-type]
    with pytest.raises(ssdkit.UsageError, match="fault"):
        Drive(SMALL, fault="above:never")
    drive = Drive(SMALL, store="none")
    with pytest.raises(ssdkit.UsageError, match="keeps no data"):
        drive.submit("write", data=b"1" * BLOCK)
    drive.close()
    drive.close()
    assert drive.closed and repr(drive).endswith("closed>")
    with pytest.raises(ssdkit.UsageError, match="closed"):
        drive.advance()
    with pytest.raises(ssdkit.UsageError, match="both"):
        Drive(SMALL).advance(to=1, completions=1)


def test_others_run_meanwhile_and_one_at_a_time() -> None:
    """The lock of the interpreter is released: this thread goes on while the drive runs."""
    drive = Drive("mem:tlc,size=256M,store=none", qd=32)
    offsets = np.random.default_rng(8).integers(0, drive.size // BLOCK, 400_000) * BLOCK
    drive.submit("write", offsets)
    refused, steps = [], 0
    thread = threading.Thread(target=drive.advance)
    thread.start()
    while thread.is_alive():
        steps += 1
        try:
            _ = drive.now
        except ssdkit.Error as error:
            refused.append(str(error))
    assert steps > 10 and any("one call at a time" in text for text in refused)
    assert drive.waiting == 0


def test_a_run_is_one_call() -> None:
    """No other thread's takes its completions."""
    drive, others = Drive(SMALL, store="none"), list[int]()

    def run(rows: int) -> None:
        for _ in range(300):
            try:
                given = len(drive.run("read", np.zeros(rows, np.int64)))
            except ssdkit.Error as e:
                assert "one call at a time" in str(e)
            else:
                others.extend([given] if given != rows else [])

    threads = [threading.Thread(target=run, args=(rows,)) for rows in (1000, 1001, 1002)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert others == [] and drive.waiting == 0


def test_ctrl_c_ends_it_and_nothing_is_lost() -> None:
    drive = Drive("mem:tlc,size=256M,store=none", qd=32)
    rows = 4_000_000
    drive.submit("write", np.arange(rows) * 7919 % (drive.size // BLOCK) * BLOCK)
    timer = threading.Timer(0.1, signal.raise_signal, [signal.SIGINT])
    timer.start()
    with pytest.raises(KeyboardInterrupt):
        drive.advance()
    left = drive.waiting
    assert 0 < left < rows
    done = drive.advance(completions=1)
    assert len(done) >= rows - left and len(done) + len(drive.advance()) == rows


def test_counters_and_wear() -> None:
    drive = Drive(SMALL, store="none")
    before = drive.counters()
    assert before.write_amplification is None
    offsets = np.random.default_rng(9).integers(0, drive.size // BLOCK, 30_000) * BLOCK
    drive.run("write", offsets)
    grown = drive.counters() - before
    assert grown.erases == drive.wear().sum() > 0
    assert grown.write_amplification is not None and grown.write_amplification > 1
    assert json.dumps(drive.config) and drive.config["size_bytes"] == drive.size


def test_parity_is_in_write_amplification() -> None:
    drive = Drive(SMALL, parity=4, store="none")
    drive.run("write", np.arange(2000) * BLOCK)
    counters = drive.counters()
    assert counters.parity > 0 and counters.folds == 0
    # The last stripe has none yet.
    assert counters.write_amplification is not None and counters.write_amplification > 1.3


def test_what_can_be_no_request_takes_none() -> None:
    drive = Drive(SMALL)
    with pytest.raises(ssdkit.UsageError, match="request 1: 200 is no operation"):
        drive.submit(np.array([0, 200], np.uint8), [0, 0])
    with pytest.raises(ssdkit.UsageError, match="drive time ends"):
        drive.submit("write", 0, at=2**64 - 1)
    with pytest.raises(ssdkit.UsageError, match=f"to: .* cannot be: 0 to {2**63 - 1}"):
        drive.advance(to=2**64 - 1)
    assert len(drive.run("write", [])) == len(drive.trim([], [])) == 0
    assert (drive.waiting, drive.now) == (0, 0)


def test_arrays_that_change_meanwhile_cost_no_drive() -> None:
    drive, ops, ends = Drive(SMALL, store="none"), np.zeros(100_000, np.uint8), threading.Event()

    def change() -> None:
        while not ends.is_set():
            ops[:] = 200
            ops[:] = 0

    thread = threading.Thread(target=change)
    thread.start()
    try:
        for _ in range(20):
            try:
                drive.submit(ops, 0)
            except ssdkit.UsageError:
                pass
    finally:
        ends.set()
        thread.join()
    waiting = drive.waiting
    assert len(drive.advance()) == waiting


def test_ctrl_c_at_the_end_of_a_short_call_keeps_what_completed() -> None:
    drive, lost, interrupts = Drive(SMALL, store="none"), 0, 0
    for n in range(60):
        ids = drive.submit("read", np.zeros(2000, np.uint64))
        given = 0
        try:
            try:
                signal.setitimer(signal.ITIMER_REAL, 0.0002 + n * 0.00002)
                given = len(drive.advance())
            finally:
                signal.setitimer(signal.ITIMER_REAL, 0)
        except KeyboardInterrupt:
            interrupts += 1
        try:
            given += len(drive.advance())
        except KeyboardInterrupt:
            given += len(drive.advance())
        lost += len(ids) - given
    # Between the call's end and the name that it is given there is nothing to be done: of few
    # interrupts two have come there.
    assert lost <= 2000 * max(interrupts // 5, 2)
