"""Fleets: what is drawn, how drives live, and what is told of their lives."""

from __future__ import annotations

import doctest
import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import ssdkit
from ssdkit import LogNormal, Normal, UsageError, _core
from ssdkit.fleet_run import life_of, profile_of
from ssdkit.fleet_statistics import (
    at_least,
    failures_with_replacements,
    kaplan_meier,
    rebuild_load,
    striped_reads,
)
from ssdkit.fleets import DRIVE, _kind

SHORT: dict[str, Any] = {"windows": 4, "bursts": 2}
#: Written so much that it wears out, and so badly that it cannot keep data.
WORN = LogNormal(6.0, 0.2)


def test_distributions_have_their_quantiles() -> None:
    assert Normal(40, 5).at(0.5) == pytest.approx(40)
    assert Normal(40, 5).at(0.8413447) == pytest.approx(45)
    assert LogNormal(0.5, 0.7).at(0.8413447) == pytest.approx(0.5 * np.exp(0.7))
    assert LogNormal(1, 1).at(0.0) == pytest.approx(np.exp(-3.0))


def test_a_profile_is_what_the_drive_says() -> None:
    told = profile_of(DRIVE)
    assert told["endurance"] == 5000 and told["bytes"] == 32 << 20
    assert told["rber_base"] == 1e-4 and told["retention_time"] == 30 * 86400
    with pytest.raises(UsageError, match="no errors, or flash that never wears out"):
        profile_of("mem:ref,size=1G,store=none")


def test_a_chunk_is_as_likely_to_fail_with_however_few_pages() -> None:
    def chance(drive: str) -> float:
        """That one of a chunk's programs fails, nearly, at its rated endurance."""
        kind = _kind(drive, 5.0, 1, (0.5, 1.0, 40.0), None, (100.0, 4, 2))
        geometry = ssdkit.profile(named := life_of(kind, 0).drive)["geometry"]
        failure = float(re.search("program_failure=([^,]+)", named)[1])  # type: ignore[index]
        return failure * float(geometry["pages"] / geometry["pages_at_once"])

    small = [DRIVE.replace("=48", f"={pages}").replace("=32M", "=64M") for pages in (24, 48, 96)]
    # Of 192 programs in 1e5, 100 times as often.
    assert [chance(drive) for drive in small] == pytest.approx([0.192] * 3)
    # One that programs three pages at once takes 32 programs.
    assert chance("mem:client-tlc,groups=1,pus=2,pages=24,size=64M,store=none,spare=0.3") == (
        pytest.approx(0.032)
    )
    # More likely than certain it is not.
    kind = _kind(DRIVE + ",program_failure=0.1", 5.0, 1, (0.5, 1.0, 40.0), None, (100.0, 4, 2))
    assert "program_failure=1.0," in life_of(kind, 0).drive


def test_the_same_fleet_is_the_same_and_a_larger_one_has_the_same_drives(
    client: Any, tmp_path: Path
) -> None:
    few = ssdkit.fleet(3, scheduler=client, **SHORT)
    more = ssdkit.fleet(5, scheduler=client, out=tmp_path, **SHORT)
    assert more.drives.slice(0, 3).equals(few.drives)
    assert more.windows.slice(0, few.windows.num_rows).equals(few.windows)
    assert (more.ran, more.known) == (5, 0)
    # Nothing lives again, and nobody is asked to.
    again = ssdkit.fleet(5, scheduler="tcp://127.0.0.1:1", out=tmp_path, **SHORT)
    assert (again.ran, again.known) == (0, 5)
    assert again.drives.equals(more.drives) and again.windows.equals(more.windows)
    other = ssdkit.fleet(3, scheduler=client, seed=2, **SHORT)
    assert not other.drives.equals(few.drives)
    with pytest.raises(UsageError, match="of another kind"):
        ssdkit.sweep({"drive": DRIVE, "rw": "randread"}, {"qd": [1]}, out=tmp_path)


def test_drives_that_are_written_more_wear_and_fail_earlier(client: Any) -> None:
    hard = ssdkit.fleet(6, writes=WORN, scheduler=client, **SHORT)
    easy = ssdkit.fleet(6, writes=0.1, scheduler=client, **SHORT)
    assert all(hard.drives["failed"].to_pylist()) and not any(easy.drives["failed"].to_pylist())
    assert set(hard.drives["cause"].to_pylist()) == {"worn"}
    assert all(0 < years < 5 for years in hard.drives["years"].to_pylist())
    curve = hard.survival()
    assert "6 drives over 5 years: 6 failed;" in repr(hard)
    assert curve["survival"].to_pylist()[-1] == 0 and curve["at_risk"].to_pylist()[0] == 6
    assert easy.survival()["survival"].to_pylist() == [1.0]
    wear = easy.windows["wear_mean"].to_numpy().reshape(6, 4)
    assert (np.diff(wear) > 0).all()
    # So many drive writes, whatever the acceleration: 0.1 a day, 50 of 5000 erases.
    user = easy.windows["user_blocks"].to_numpy().reshape(6, 4).sum(axis=1)
    assert user == pytest.approx(0.1 * 365.25 * 5 / 100 * 8192, rel=0.05)
    load = hard.rebuild(capacity=1e12, data=4, parity=2)
    assert load.num_rows == 60 and sum(load["failures"].to_pylist()) >= 6


def test_acceleration_scales_erases_failures_and_time_alike() -> None:
    def told(acceleration: float) -> dict[str, float]:
        kind = _kind(DRIVE, 5.0, 1, (0.5, 1.0, 40.0), None, (acceleration, 4, 2))
        life = life_of(kind, 0)
        keys = dict(part.split("=") for part in life.drive.split(",")[1:])
        return {
            "endurance": float(keys["endurance"]) * acceleration,
            **{
                key: float(keys[key]) / acceleration for key in ("program_failure", "erase_failure")
            },
            "requests": life.course["requests"] * acceleration,
            "rest": life.course["rest"] * acceleration,
            **{key: float(keys[key]) for key in ("rber_base", "rber_wear")},
        }

    # Half of the real drive's blocks a day, of requests of which half are writes.
    expected = told(100.0)
    assert expected["requests"] * 8 == pytest.approx(5 * 365.25 * 0.5 * 8192 * 2, rel=1e-3)
    for acceleration in (10.0, 25.0, 500.0):
        assert told(acceleration) == pytest.approx(expected, rel=1e-3)


def test_bad_flash_and_heat_each_lose_data_and_repeat_reads(client: Any) -> None:
    # Data that is as old as a year at least, of flash near its end.
    drive = DRIVE.replace("endurance_cliff=false", "endurance_cliff=false,endurance=400")
    common: dict[str, Any] = {"drive": drive, "acceleration": 20.0, "writes": 0.02, **SHORT}
    good, hot, bad = (
        ssdkit.fleet(2, errors=errors, temperature=temperature, scheduler=client, **common)
        for errors, temperature in ((10.0, 40.0), (10.0, 70.0), (40.0, 40.0))
    )
    retries = [int(np.sum(of.windows["flash_retries"].to_numpy())) for of in (good, hot, bad)]
    assert retries[0] == 0 and retries[1] > 0 and retries[2] > 0
    assert not any(good.drives["failed"].to_pylist())
    assert set(hot.drives["cause"].to_pylist()) == set(bad.drives["cause"].to_pylist()) == {"lost"}
    # At 1.1 eV charge is lost 35.3 times as fast at 70 degrees as at 40, as tables say.
    kind = _kind(DRIVE, 5.0, 1, (0.5, 1.0, 70.0), None, (100.0, 4, 2))
    time = re.search("retention_time=([0-9]+)s", life_of(kind, 0).drive)
    assert time is not None and int(time[1]) == pytest.approx(30 * 86400 / 35.3, rel=0.002)


def test_workloads_are_drawn_by_weight_and_curves_are_by_workload(client: Any) -> None:
    mixed = {"rw": "randrw", "read_percent": 50, "qd": 4}
    workloads = {"mixed": (3, mixed), "hot": (1, {**mixed, "hot": "20:80"})}
    lives = ssdkit.fleet(8, workloads=workloads, writes=0.1, scheduler=client, **SHORT)
    names = lives.drives["workload"].to_pylist()
    assert set(names) == {"mixed", "hot"}
    curves = lives.survival(by="workload")
    assert set(curves["workload"].to_pylist()) == {"mixed", "hot"}
    with pytest.raises(UsageError, match="no such column"):
        lives.survival(by="color")
    for end in ("cause", "failed", "years", "error", "key"):
        with pytest.raises(UsageError, match="take one of writes, errors, temperature, workload"):
            lives.survival(by=end)


def test_striped_reads_are_of_the_drives_own_latencies(client: Any) -> None:
    lives = ssdkit.fleet(4, writes=0.1, scheduler=client, **SHORT)
    told = lives.striped(2, groups=20).to_pylist()
    for row in told:
        # Some 4 x 3,700 reads a window.
        few = row["percentile"] == 99.99
        assert np.isnan(row["one_ns"]) == few and row["alive"] == 4
        assert few or row["percentile"] == 99.9 or row["striped_ns"] >= row["one_ns"]
    first = lives.striped(1, 2, groups=20, percentiles=[99.0]).to_pylist()
    assert all(row["striped_ns"] <= row["one_ns"] for row in first)
    with pytest.raises(UsageError, match="no 9 drives"):
        lives.striped(9)


def test_striped_reads_have_their_year_where_no_drive_reaches_the_last_window(client: Any) -> None:
    # The first fails with the last burst of the third window of 20, the last in the sixth.
    lives = ssdkit.fleet(3, writes=WORN, scheduler=client, windows=20, bursts=4)
    windows = [lives.windows["drive"].to_pylist().count(drive) for drive in range(3)]
    told = lives.striped(1, groups=3, percentiles=[50.0]).to_pylist()
    assert max(windows) < 10
    assert [row["years"] for row in told] == [0.25 * n for n in range(1, max(windows))]
    alive = [sum(last > n for last in windows) for n in range(1, max(windows))]
    assert [row["alive"] for row in told] == alive


def test_a_drive_that_cannot_be_is_a_row_with_its_error(client: Any) -> None:
    # Each of its programs fails, from the first on.
    drive = DRIVE + ",program_failure=0.02,failure_power=0.1"
    with pytest.warns(RuntimeWarning, match="2 of 2 drives have no life .* while it was written"):
        lives = ssdkit.fleet(2, drive=drive, writes=0.1, scheduler=client, **SHORT)
    assert all("while it was written" in error for error in lives.drives["error"].to_pylist())
    assert "0 failed of 0, 2 without a life;" in repr(lives)
    curve = lives.survival().to_pydict()
    assert curve["at_risk"] == [0] and np.isnan(curve["survival"] + curve["lower"]).all()
    assert lives.rebuild(capacity=1e12)["failures"].to_pylist() == [0] * 60


@pytest.mark.parametrize(
    ("options", "says"),
    [
        ({"drives": 0}, "drives: 0 cannot be: 1 to 10000000"),
        ({"years": 0}, "take more than 0"),
        ({"years": float("nan")}, "take more than 0"),
        ({"acceleration": 0.5}, "take 1 or more"),
        ({"acceleration": 5000}, "take 500 at most"),
        ({"windows": 0}, "windows: 0 cannot be: 1 to"),
        ({"writes": 0}, "above 0"),
        ({"errors": Normal(1, 1)}, "above 0"),
        ({"drive": "null:"}, "take a mem: drive"),
        ({"drive": DRIVE + ",sparse=3"}, "sparse"),
        ({"drive": "mem:ref,size=1G"}, "never wears out"),
        ({"workloads": {"rw": "randread"}}, "is written"),
        ({"workloads": {"rw": "randrw", "read_percent": 100}}, "is written"),
        ({"workloads": {"rw": "randrw", "depth": 2}}, "depth is none of a fleet's"),
        ({"workloads": {"rw": "randrw", "rate": 2}}, "rate is none of a fleet's"),
        ({"workloads": {"rw": "randrw", "qd": 0}}, "qd"),
        ({"workloads": {"rw": "randrw", "seed": 2}}, "seed is none"),
        ({"workloads": {}}, "no workloads"),
        *(
            ({"workloads": wrong}, "workloads: give options of bench")
            for wrong in ([1], 1, "randrw", {"a": (1, {"rw": "randrw"}, 3)}, {"a": "randrw"})
        ),
        *(
            ({"workloads": {"a": (weight, {"rw": "randrw"})}}, "weight of workload a")
            for weight in (0, float("inf"), float("nan"), 1e300)
        ),
        *(
            ({"workloads": {"rw": "randrw", "bs": bs}}, "bs")
            for bs in (0, "0k", "many", "5000000m", 1.5)
        ),
        *(
            ({"workloads": {"rw": "randrw", "read_percent": percent}}, "read_percent|read-percent")
            for percent in (-50, 101, 10**400, float("nan"))
        ),
        *(({"temperature": wrong}, "-55 to 150 degrees") for wrong in (-300, -270, 313.15)),
        *(({"writes": wrong}, "writes") for wrong in (1e300, 1e9, LogNormal(4000.0, 1.0), -1)),
        *(({"years": wrong}, "years") for wrong in (1e300, -1, 10**400)),
        ({"years": 600, "acceleration": 1}, "more acceleration"),
        ({"seed": -1}, "seed: -1 cannot be"),
    ],
)
def test_what_cannot_be_is_refused_before_anything_lives(options: Any, says: str) -> None:
    given = {"drives": 2, "scheduler": "tcp://127.0.0.1:1", **options}
    with pytest.raises(UsageError, match=says):
        ssdkit.fleet(given.pop("drives"), **given)


@pytest.mark.parametrize(
    "options",
    [
        {"writes": "many"},
        {"writes": True},
        {"seed": "x"},
        {"seed": 1.0},
        {"drive": None},
        {"windows": True},
        {"years": "5"},
        {"workloads": {"rw": "randrw", "read_percent": "abc"}},
        {"workloads": {"a": ("3", {"rw": "randrw"})}},
    ],
)
def test_what_is_of_another_kind_is_refused_by_its_name(options: Any) -> None:
    name = (
        next(iter(options)) if "workloads" not in options else "read_percent|weight of workload a"
    )
    with pytest.raises(TypeError, match=name):
        ssdkit.fleet(2, scheduler="tcp://127.0.0.1:1", **options)


def test_the_example_of_the_page_runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    page = (Path(__file__).parents[2] / "docs/fleets.md").read_text(encoding="utf-8")
    # A dozen drives over some months tell it as well.
    few = page.replace("fleet(200, ", "fleet(12, ").replace("years=5,", "years=0.25,")
    assert few != page
    example = doctest.DocTestParser().get_doctest(few, {}, "fleets.md", None, None)
    monkeypatch.chdir(tmp_path)
    ran = doctest.DocTestRunner().run(example)
    assert ran.attempted == 5 and ran.failed == 0
    assert (tmp_path / "lives").is_dir()


def test_numbers_of_numpy_are_numbers() -> None:
    drawn: Any = (np.int64(1), 1, np.float32(40))
    kind = _kind(DRIVE, np.float64(5), 1, drawn, None, (100.0, 4, 2))
    assert life_of(kind, 0).drawn["writes"] == 1


def test_a_life_takes_what_it_is_given() -> None:
    course: dict[str, Any] = {"windows": 2, "bursts": 3, "requests": 50, "rest": 86400.0}
    told = _core.life(DRIVE, tend=3600.0, rw="randrw", **course)
    assert [round(window["seconds"] / 86400) for window in told] == [3, 6]
    for wrong in ({"windows": 0}, {"rest": float("nan")}, {"rest": -1.0}):
        with pytest.raises(UsageError, match="above 0"):
            _core.life(DRIVE, **{**course, "tend": 1.0, "rw": "randrw", **wrong})
    with pytest.raises(UsageError, match="take a mem: drive"):
        _core.life("null:", tend=1.0, rw="randrw", **course)


def test_kaplan_and_meier_by_a_published_example() -> None:
    """Remission under 6-MP (Freireich and others 1963; the usual textbook example)."""
    weeks = [6, 6, 6, 6, 7, 9, 10, 10, 11, 13, 16, 17, 19, 20, 22, 23, 25, 32, 32, 34, 35]
    failed = [1, 1, 1, 0, 1, 0, 1, 0, 0, 1, 1, 0, 0, 0, 1, 1, 0, 0, 0, 0, 0]
    curve = kaplan_meier([float(week) for week in weeks], [bool(f) for f in failed])
    expected = [1, 0.857143, 0.806723, 0.752941, 0.690196, 0.627451, 0.537815, 0.448179]
    assert curve["survival"] == pytest.approx(expected, abs=1e-6)
    assert list(curve["years"]) == [0, 6, 7, 10, 13, 16, 22, 23]
    assert list(curve["at_risk"]) == [21, 21, 17, 15, 12, 11, 7, 6]
    # On the scale log(-log S): of the first, 0.6197 to 0.9516; of the last, 0.1881 to 0.6801.
    bounds = [(curve["lower"][n], curve["upper"][n]) for n in (1, 7)]
    assert bounds[0] == pytest.approx((0.6197, 0.9516), abs=1e-4)
    assert bounds[1] == pytest.approx((0.1881, 0.6801), abs=1e-4)


def test_where_none_or_all_failed_the_interval_says_of_how_many() -> None:
    def bounds(years: list[float], failed: list[bool]) -> list[tuple[float, float]]:
        curve = kaplan_meier(years, failed)
        return [(float(a), float(b)) for a, b in zip(curve["lower"], curve["upper"], strict=True)]

    # Clopper and Pearson: none of 10 is up to 0.3085, from tables.
    assert bounds([5.0] * 10, [False] * 10)[0] == pytest.approx((1 - 0.3085, 1.0), abs=1e-4)
    at_once = bounds([5.0] * 10, [True] * 10)
    assert at_once[1] == pytest.approx((0.0, 0.3085), abs=1e-4)
    # Before the first failure, of those that were still seen then; after the last, no more
    # than before.
    some = bounds([1.0, *[2.0] * 10, 3.0], [False, *[True] * 10, True])
    assert some[0][0] == pytest.approx(0.025 ** (1 / 11))
    assert some[2][0] == 0 and some[2][1] == some[1][1] > some[1][0] > 0
    assert np.isnan(bounds([], [])).all()


def replaced(lives: list[float], failed: list[bool], years: float) -> list[float]:
    return list(
        failures_with_replacements(
            np.array(lives),
            np.array(failed),
            years,
            1,
            writes=np.ones(len(lives)),
            workloads=["all"] * len(lives),
        )
    )


def test_replacements_fail_too() -> None:
    assert replaced([1.0, 1.0], [True, True], 3.5) == [1, 1, 2, 2, 3, 3]
    assert not replaced([5.0, 5.0], [False, False], 5.0)
    assert not replaced([], [], 5.0)
    with pytest.raises(UsageError, match="longer than 0 years"):
        replaced([0.0], [True], 5.0)


def test_what_replaces_a_drive_lives_under_the_load_of_its_place() -> None:
    # Lives are a constant over the writes, so that each place fails again and again.
    dice = np.random.default_rng(1)
    writes = 0.15 * np.exp(0.8 * np.clip(dice.standard_normal(4000), -3, 3))
    true = np.quantile(writes, 0.78) * 5 / writes
    failed, lives = true < 5, np.minimum(true, 5)
    expected = np.floor(5 / true).sum()
    for workloads in (["all"] * 4000, ["hot", "mixed"] * 2000):
        times = failures_with_replacements(
            lives, failed, 5.0, 1, writes=writes, workloads=workloads
        )
        assert len(times) == pytest.approx(expected, rel=0.015)
        assert expected > 1.25 * failed.sum()
    # Of two workloads with the same writes, each is replaced by its own.
    hot = np.array([True, False] * 5)
    times = failures_with_replacements(
        np.where(hot, 2.0, 5.0),
        hot,
        5.0,
        1,
        writes=np.ones(10),
        workloads=np.where(hot, "hot", "mixed").tolist(),
    )
    assert list(times) == [2.0] * 5 + [4.0] * 5
    # Drives that are written alike are all as near: each of them may be drawn.
    times = np.array(replaced([1 + n / 1000 for n in range(500)], [True] * 500, 3.0))
    assert len(np.unique(times[times > 1.5].round(6))) > 300


def test_what_fails_with_the_last_burst_is_counted_and_rebuilt() -> None:
    # Of those that are watched to the end one fails there.
    assert replaced([5.0, 5.0], [True, False], 5.0) == [5.0]
    assert replaced([2.5, 2.5], [True, True], 5.0) == [2.5, 2.5, 5.0, 5.0]
    # Half a month of a rebuild.
    capacity = 365.25 * 86400 / 24 * 1e6
    load = rebuild_load(
        np.array([1.0]), 1.0, capacity=capacity, data=1, parity=1, rate=1e6, drives=4
    )
    assert load["failures"][-1] == 1 and load["most_at_once"][-1] == 1
    assert load["degraded"][-1] == pytest.approx(0.25) and not load["degraded"][:-1].any()


def test_a_rebuild_takes_its_time() -> None:
    # A rebuild of a month in the middle of the third, one group of two.
    capacity = 365.25 * 86400 / 12 * 1e6
    load = rebuild_load(
        np.array([2.5 / 12]), 1.0, capacity=capacity, data=1, parity=1, rate=1e6, drives=4
    )
    assert list(load["failures"][:5]) == [0, 0, 1, 0, 0]
    assert load["degraded"][:5] == pytest.approx([0, 0, 0.25, 0.25, 0])
    assert load["read_bytes"].sum() == capacity and load["most_at_once"].max() == 1
    three = rebuild_load(
        np.array([0.1, 0.1001, 0.5]), 1.0, capacity=capacity, data=1, parity=1, rate=1e6, drives=4
    )
    # Two go on from the second month into the third, of which none begins there.
    assert list(three["most_at_once"]) == [0, 2, 2, 0, 0, 0, 1, 0, 0, 0, 0, 0]
    long = rebuild_load(
        np.array([0.04]), 1.0, capacity=2.4 * capacity, data=1, parity=1, rate=1e6, drives=4
    )
    assert list(long["most_at_once"]) == [1, 1, 1, 0, 0, 0, 0, 0, 0, 0, 0, 0]
    assert ((long["most_at_once"] > 0) == (long["degraded"] > 0)).all()
    with pytest.raises(UsageError, match="above 0"):
        rebuild_load(np.array([]), 1.0, capacity=0, data=1, parity=1, rate=1, drives=2)


@pytest.mark.parametrize(
    ("name", "wrong"),
    [
        *(("capacity", wrong) for wrong in (0, -1, float("nan"), 10**400)),
        *(("rate", wrong) for wrong in (0, float("inf"), "fast")),
        *((name, wrong) for name in ("data", "parity") for wrong in (0, 2**70, 1.5)),
        *((name, wrong) for name in ("k", "n", "groups") for wrong in (0, -1, 2**70, "all")),
        *(("percentiles", wrong) for wrong in ([101], [float("nan")], ["half"])),
    ],
)
def test_what_no_group_can_have_is_told_by_its_name(name: str, wrong: Any) -> None:
    rebuild: dict[str, Any] = {"capacity": 1e12, "data": 2, "parity": 1, "rate": 1e8, "drives": 9}
    reads: dict[str, Any] = {"k": 1, "n": 1, "at": [50.0], "groups": 2, "seed": 1}
    with pytest.raises((UsageError, TypeError), match=name):
        if name in rebuild:
            rebuild_load(np.array([1.0]), 5, **{**rebuild, name: wrong})
        key = "at" if name == "percentiles" else name
        striped_reads([[100]], [[1]], **{**reads, key: wrong})
    # So slow that it never ends.
    load = rebuild_load(np.array([1.0]), 5, **{**rebuild, "capacity": 1e300, "rate": 1e-300})
    assert load["degraded"][-1] > 0


def test_order_statistics_are_those_of_drawn_reads() -> None:
    dice = np.random.default_rng(1)
    shares = dice.random((5, 1))
    done = dice.random((200_000, 5)) < shares[:, 0]
    for k in range(1, 6):
        seen = (done.sum(axis=1) >= k).mean()
        assert at_least(shares, k)[0] == pytest.approx(seen, abs=0.005)
    # Two drives: one answers below 10 always, one below 100.
    told = striped_reads(
        [np.array([10]), np.array([100])],
        [np.array([50]), np.array([50])],
        k=2,
        n=2,
        at=[50.0],
        groups=3,
        seed=1,
    )
    assert told == [{"percentile": 50.0, "one_ns": 10.0, "striped_ns": 100.0}]


def test_a_percentile_of_too_few_reads_is_not_told() -> None:
    def told(reads: int, k: int, n: int, percent: float) -> tuple[bool, bool]:
        """Of one drive, and of a striped read; the reads are those of ten drives."""
        below, counts = [np.array([10])] * 10, [np.array([reads // 10])] * 10
        row = striped_reads(below, counts, k=k, n=n, at=[percent], groups=1, seed=1)[0]
        return row["one_ns"] == 10, row["striped_ns"] == 10

    # As of any run: ten beyond it.
    assert told(1000, 1, 1, 99.0) == (True, True)
    assert told(990, 1, 1, 99.0) == (False, False)
    # The slowest of 8 rests on an eighth of that; where two may be late, on much more.
    assert told(7900, 8, 8, 99.0) == (True, False)
    assert told(8000, 8, 8, 99.0) == (True, True)
    # C(10, 3) x^3 (1 - x)^7 + ... is 0.0001 at x = 0.00957.
    assert told(1040, 8, 10, 99.99) == (False, False)
    assert told(1060, 8, 10, 99.99) == (False, True)
    assert told(10**7, 8, 10, 100.0) == (False, False)
    assert told(100, 8, 10, 0.0) == (True, True)
