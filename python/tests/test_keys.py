"""Key-value stores, held against a dict."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest

import ssdkit
from ssdkit import KeyValue

STORES = ["log", "in-place", "batched", "kv"]


@pytest.mark.parametrize("store", STORES)
def test_it_is_a_dict(store: str) -> None:
    rng, model = np.random.default_rng(1), dict[bytes, bytes]()

    def key() -> bytes:
        return b"key %d" % rng.integers(0, 300)

    def value() -> bytes:
        return rng.bytes(int(rng.choice([0, 1, 100, 5000, 40_000], p=[0.1, 0.2, 0.5, 0.15, 0.05])))

    with KeyValue("mem:tlc", store, size="128M", memory=2 << 20) as kept:
        assert kept.store == store and not kept.found
        for _ in range(400):
            what = rng.choice(["put", "get", "delete", "many", "batch", "scan", "flush"])
            if what == "put":
                one, its = key(), value()
                kept[one] = model[one] = its
            elif what == "get":
                one = key()
                assert kept.get(one) == model.get(one) and (one in kept) == (one in model)
            elif what == "delete":
                one = key()
                assert kept.delete(one) == (model.pop(one, None) is not None)
            elif what == "many":
                some = {key(): value() for _ in range(30)}
                kept.put(some)
                model.update(some)
                keys = [key() for _ in range(400)]
                assert kept.get_many(keys) == [model.get(one) for one in keys]
                gone = list({key() for _ in range(20)})
                assert kept.delete_many(gone) == [one in model for one in gone]
                model = {one: its for one, its in model.items() if one not in gone}
            elif what == "batch" and store != "kv":
                writes: dict[bytes, bytes | None] = {
                    key(): value() if rng.random() < 0.7 else None for _ in range(5)
                }
                kept.batch(writes)
                for one, new in writes.items():
                    if new is None:
                        model.pop(one, None)
                    else:
                        model[one] = new
            elif what == "scan":
                if store == "kv":
                    assert dict(kept.scan()) == model
                else:
                    start, count = key(), int(rng.integers(0, 40))
                    wanted = sorted(item for item in model.items() if item[0] >= start)
                    assert kept.scan(start, count) == wanted[:count]
            elif what == "flush":
                kept.flush()
        assert sorted(kept) == sorted(model)
        assert kept.now > 0


@pytest.mark.parametrize("store", STORES)
def test_the_same_calls_take_the_same_time(store: str) -> None:
    def run() -> int:
        with KeyValue("mem:tlc", store, size="64M", memory=2 << 20) as kept:
            kept.put((b"%d" % n, bytes(n % 3000)) for n in range(2000))
            kept.flush()
            kept.get_many([b"%d" % (n * 7 % 2000) for n in range(500)])
            return kept.now

    assert run() == run() > 0


@pytest.mark.parametrize("target", ["pblk", "batch", "kv"])
def test_it_is_found_on_its_drive_file(target: str, tmp_path: Path) -> None:
    create: Any = getattr(ssdkit, "create", None)
    if create is None:
        pytest.skip("nothing makes drive files here")
    path = str(tmp_path / "a.ssd")
    create(path, "tlc", size="64M", **({} if target == "pblk" else {"target": target}))
    records = {b"%d" % n: b"value %d" % n for n in range(500)}
    with KeyValue(path) as kept:
        assert not kept.found
        kept.put(records)
    with KeyValue(path) as kept:
        assert kept.found and dict(kept.scan()) == records
        del kept[b"7"]
        kept.flush()
        # What was flushed is there, though it is not closed.
        kept[b"8"] = b"lost or not"
        del kept
    with KeyValue(f"ssd:{path},copy=yes") as kept:
        assert kept.get(b"7") is None and kept.get(b"9") == b"value 9"
    with pytest.raises(ssdkit.UsageError):
        KeyValue(path, "in-place" if target != "pblk" else "kv")


def test_what_cannot_be_is_told() -> None:
    for arguments, words in [
        (("mem:tlc,size=64M", "tree"), "`tree` is no store: write log, in-place, batched or kv"),
        (("mem:tlc,size=64M,target=kv", "log"), "take kv"),
        (("mem:tlc,size=64M,store=none",), "keeps no data"),
        (("nbd:/nowhere",), "mem: drive or a drive file"),
        (("mem:tlc,size=1M",), "size"),
    ]:
        with pytest.raises(ssdkit.UsageError, match=words):
            KeyValue(*arguments)
    with pytest.raises(ssdkit.UsageError, match="memory|too small"):
        KeyValue("mem:tlc,size=64M", memory=1000)
    with KeyValue("mem:tlc", "kv", size="64M") as kept:
        with pytest.raises(ssdkit.UsageError, match="no batches"):
            kept.batch({b"a": b"b"})
        with pytest.raises(ssdkit.UsageError, match="longer than"):
            kept[b"k" * 300] = b""
        with pytest.raises(KeyError):
            kept[b"a"]
        with pytest.raises(KeyError):
            del kept[b"a"]
        with pytest.raises(TypeError):
            kept["a"] = b""  # type: ignore[index]
    kept.close()
    assert kept.closed
    with pytest.raises(ssdkit.UsageError, match="closed"):
        kept.get(b"a")


@pytest.mark.parametrize("store", ["log", "in-place", "batched"])
def test_a_batch_that_is_too_large_is_told_however_large(store: str) -> None:
    with KeyValue("mem:tlc,size=64M", store) as kept:
        for count in 1000, 20_000:
            with pytest.raises(ssdkit.Error, match="make the batch smaller"):
                kept.batch({b"%d" % i: b"x" * 100 for i in range(count)})
        assert kept.get(b"1") is None


def test_a_drive_that_is_full_says_so() -> None:
    kept = KeyValue("mem:tlc", "kv", size="64M", groups=2, pus=2, pages=16)
    with pytest.raises(ssdkit.Error, match="capacity|full|space"):
        kept.put((b"%d" % n, bytes(500_000)) for n in range(300))
    assert kept.get(b"0") == bytes(500_000)
