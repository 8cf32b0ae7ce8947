"""Grids: their points, and what they refuse."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import ssdkit
from ssdkit import Knee, LatinHypercube, Range, Sobol, UsageError
from ssdkit.sweep_grid import points_of
from ssdkit.sweep_run import base_of, files_of, run_of

BASE = {"drive": "mem:tlc,size=64M,groups=1,pus=2,pages=48,store=none", "rw": "randread"}
KNEE = Knee("iodepth", Range(1, 8, integer=True), "iops")


def test_a_product_has_each_with_each_and_the_last_key_changes_fastest() -> None:
    points = points_of(({"qd": [1, 2], "bs": ["4k", "8k"]}, [{"seed": 7}, {"seed": 8}])).points
    assert len(points) == 8
    assert points[0] == {"qd": 1, "bs": "4k", "seed": 7}
    assert points[1]["seed"] == 8 and points[2]["bs"] == "8k" and points[4]["qd"] == 2


def test_numbers_of_numpy_are_numbers() -> None:
    points = points_of({"qd": np.array([1, 4]), "drive.spare": np.linspace(0.1, 0.2, 2)}).points
    assert [type(value) for value in points[3].values()] == [int, float]


@pytest.mark.parametrize("kind", [LatinHypercube, Sobol])
def test_samplers_are_even_and_the_same_for_a_seed(kind: Any) -> None:
    ranges = {"qd": Range(1, 64, log=True, integer=True), "drive.spare": (0.1, 0.4)}
    points = kind(16, ranges, seed=5).points()
    assert points == kind(16, ranges, seed=5).points()
    assert points != kind(16, ranges, seed=6).points()
    spares = sorted((point["drive.spare"] - 0.1) / 0.3 for point in points)
    assert all(n / 16 <= share <= (n + 1) / 16 for n, share in enumerate(spares))
    assert all(1 <= point["qd"] <= 64 and isinstance(point["qd"], int) for point in points)


@pytest.mark.parametrize(
    ("base", "grid", "says"),
    [
        (BASE, {}, "the grid is empty"),
        (BASE, [], "the list of points is empty"),
        (BASE, (), "the grid is empty"),
        (BASE, {"qd": []}, "qd: its list is empty"),
        (BASE, {"qd": 4}, r"a grid has a list of values, for example qd=\[4\]"),
        (BASE, {"qd": "1,2"}, "a grid has a list of values"),
        (BASE, {"qd": [1, 1]}, "a value is in its list twice"),
        (BASE, [{"qd": 1}, {"qd": 1}], "a point is in the list twice"),
        (BASE, {"qd": [1], "iodepth": [2]}, "qd is there twice, also as iodepth"),
        (BASE, ({"qd": [1]}, [{"qd": 2}]), "qd is in two grids"),
        ({**BASE, "qd": 4}, {"qd": [1]}, "qd is in the base and in the grid"),
        ({**BASE, "iodepth": 4}, {"qd": [1]}, "qd is in the base and in the grid"),
        (BASE, {"drive.size": ["64M"]}, "size is in the base's drive"),
        (BASE, {"drive": ["mem:tlc"]}, "drive is in the base and in the grid"),
        ({"rw": "read"}, {"qd": [1]}, "no drive"),
        (BASE, {"json": [True]}, "json is no key of a sweep"),
        (BASE, {"report": ["a.html"]}, "plot the rows"),
        (BASE, {"depth": [1]}, "--depth"),
        (BASE, {"drive.sparse": [1]}, "sparse"),
        (BASE, {"qd": [0]}, "qd=0"),
        (BASE, {"rw": ["sideways"]}, "rw is in the base and in the grid"),
        (BASE, {"qd": [float("nan")]}, "nan is no value"),
        (BASE, {"seed": [-1]}, "seed=-1"),
        (BASE, LatinHypercube(2, {"qd": (1, 3)}), "points cannot be"),
        (BASE, ({"qd": [1]}, {}), "the grid is empty"),
        (BASE, ({"qd": [1]}, []), "the list of points is empty"),
        (BASE, ({"qd": [1]}, KNEE), "qd is in two grids"),
        (BASE, (KNEE, Sobol(2, {"qd": (1, 3)})), "qd is in two grids"),
        ({**BASE, "qd": 4}, KNEE, "qd is in the base and in the grid"),
        ({**BASE, "qd": 4, "iodepth": 4}, {"bs": ["4k"]}, "qd is in the base twice"),
        ({"rw": "read"}, {"drive": ["mem:tlc"], "drive.spare": [1]}, "give whole names, or their"),
        ({"rw": "read", "drive.spare": 1}, {"drive": ["mem:tlc"]}, "leave out either"),
        (BASE, [{"qd": 1}, 3], "point 1 of the list is 3"),
        (BASE, [{"qd": 1, "iodepth": 2}], "qd is there twice"),
        (BASE, {"drive.": [1]}, "drive. names no key"),
        (BASE, {"qd": [[[1]]]}, "a list in a list"),
        (BASE, {f"drive.{n}": range(10) for n in range(8)}, "more than 1048576 points"),
        (BASE, ({"qd": range(1025)}, {"bs": range(1024)}), "more than 1048576 points"),
    ],
)
def test_contradictions_are_told_before_anything_runs(base: Any, grid: Any, says: str) -> None:
    with pytest.raises(UsageError, match=says):
        ssdkit.sweep(base, grid, scheduler="tcp://127.0.0.1:1")


@pytest.mark.parametrize("grid", [3, "qd", {"qd": [object()]}, {"qd": [{}]}, {3: [1]}])
def test_wrong_types_are_type_errors(grid: Any) -> None:
    with pytest.raises((TypeError, UsageError)):
        ssdkit.sweep(BASE, grid, scheduler="tcp://127.0.0.1:1")


@pytest.mark.parametrize(
    ("make", "says"),
    [
        (lambda: Range(2, 1), "to a larger one"),
        (lambda: Range(0, 1, log=True), "begins above 0"),
        (lambda: Range(1.2, 1.8, integer=True), "no whole number"),
        (lambda: Range(1, math.inf), "a finite number"),
        (lambda: Sobol(0, {"qd": (1, 2)}), "n of Sobol: 0 cannot be: 1 to"),
        (lambda: Sobol(2, {}), "no ranges"),
        (lambda: Sobol(2, {"qd": 3}), "is no range"),
        (lambda: Knee("qd", Range(1, 2), "iops", start=2), "begin with 3"),
        (lambda: Knee("qd", Range(1, 2), "iops", points=2), "points of the knee of qd: 2"),
        (lambda: Knee("qd", Range(1, 2), "iops", narrow=0), "above 0"),
        (
            lambda: points_of((Knee("qd", Range(1, 2), "a"), Knee("bs", Range(1, 2), "a"))),
            "one knee",
        ),
        (lambda: ssdkit.sweep(BASE, {"qd": [1]}, invalid="maybe"), "take 'refuse'"),
        (lambda: ssdkit.sweep(BASE, {"qd": [1]}, workers=0), "workers: 0 cannot be: 1 to"),
        (lambda: ssdkit.sweep(BASE, {"qd": [1]}, workers=1, scheduler="tcp://a:1"), "one of both"),
    ],
)
def test_what_cannot_be_is_refused(make: Any, says: str) -> None:
    with pytest.raises(UsageError, match=says):
        make()


def test_a_number_and_its_text_are_one_run_and_all_else_is_another(tmp_path: Path) -> None:
    def key(**options: Any) -> str:
        point = {name.replace("__", "."): value for name, value in options.items()}
        return run_of(base_of(BASE, list(point)), point, True).key

    assert key(qd=4) == key(qd="4")
    assert key(drive__spare=0.3) == key(drive__spare="0.3")
    different = [
        key(),
        key(qd=4),
        key(qd=5),
        key(seed=2),
        key(drive__spare=0.3),
        key(bs="8k"),
        key(seed=0),
    ]
    assert len(set(different)) == len(different)
    assert key(verify=False) == key(verify=None) == key()


def test_what_is_in_a_file_is_a_part_of_the_run(tmp_path: Path) -> None:
    path = tmp_path / "faults"
    base = {**BASE, "faults": str(path)}
    keys = []
    for text in ("above:read,every=100,delay=5ms\n", "above:read,every=1000,delay=5ms\n"):
        path.write_text(text)
        keys.append(run_of(base, {}, True).key)
    assert keys[0] != keys[1]


@pytest.mark.parametrize(
    "drive",
    [
        "mem:{},size=64M",
        "mem:tlc,size=64M,target=rules,rules={}",
        "mem:tlc,size=64M,rules= {}",
        "mem:tlc,size=64M,target=rules,targets=2,rules=./other+{}",
        "mem:tlc,size=64M,target=rules,rules=./other,remote=mem:{},size=64M",
    ],
)
def test_what_is_in_the_files_of_a_drives_name_is_a_part_of_the_run(
    drive: str, tmp_path: Path
) -> None:
    path = tmp_path / "file"
    found = []
    for text in ("one\n", "another\n"):
        path.write_text(text)
        found.append(files_of(drive.format(path)))
    assert found[0] != found[1]
    assert files_of("mem:tlc", [str(path)]) == found[1]


def test_a_knee_is_found() -> None:
    knee = Knee("x", Range(0, 100), "y", points=40, narrow=0.005)

    def y(x: float) -> float:
        return min(x, 37.0) * 3

    seen = {point["x"]: y(point["x"]) for point in knee.first()}
    while (value := knee.next(seen)) is not None:
        assert value not in seen
        seen[value] = y(value)
    assert 12 < len(seen) < 40
    assert min(abs(x - 37.0) for x in seen) < 0.5


def test_a_knee_ends_with_its_points_and_where_nothing_can_be_told() -> None:
    knee = Knee("x", Range(1, 8, integer=True), "y", points=20, start=3)
    seen = {float(point["x"]): point["x"] ** 2.0 for point in knee.first()}
    while (value := knee.next(seen)) is not None:
        seen[value] = value**2.0
    assert len(seen) <= 8
    assert knee.next(dict.fromkeys([1.0, 4.0, 8.0], math.nan)) is None
