"""Sweeps on real workers: their rows are what each run gives alone, and stay."""

from __future__ import annotations

import doctest
import getpass
import hashlib
import json
import os
import signal
import socket
import subprocess
import sys
import textwrap
import time
from functools import partial
from pathlib import Path
from threading import Thread
from typing import Any

import pytest

import ssdkit
from ssdkit import Error, UsageError
from ssdkit import sweep_command as command
from ssdkit._crew import CONNECT, Crew
from ssdkit._folders import remove
from ssdkit.sweep_run import WorkerVersionError, as_dict, figures, perform, run_of
from ssdkit.sweep_store import Store

DRIVE = "mem:tlc,size=64M,groups=1,pus=2,pages=48,store=none"
READS: dict[str, Any] = {"drive": DRIVE, "rw": "randread", "ios": 500}
WRITES: dict[str, Any] = {"drive": DRIVE, "rw": "randwrite", "ios": 2000, "precondition": "seq"}
EXAMPLES = Path(__file__).parents[2] / "examples" / "sweeps"


@pytest.fixture(autouse=True)
def aged(tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch) -> None:
    """Programs that a test starts keep their aged drives to themselves."""
    monkeypatch.setenv("SSDKIT_AGED", str(tmp_path_factory.mktemp("aged")))


def parts(folder: Path) -> int:
    return len(list((folder / "rows").glob("*.parquet")))


def test_rows_are_what_each_run_gives_alone(client: Any, tmp_path: Path) -> None:
    grid = {"qd": [1, 4], "seed": [1, 2]}
    plain = ssdkit.sweep(READS, grid, scheduler=client, share=False)
    assert [(row["qd"], row["seed"]) for row in plain.rows()] == [
        (1, 1), (1, 2), (4, 1), (4, 2)
    ]  # fmt: skip
    for row in plain.rows():
        alone = ssdkit.bench(qd=row["qd"], seed=row["seed"], **READS)
        assert figures(as_dict(alone)).items() <= row.items()
    aged = ssdkit.sweep(WRITES, grid, scheduler=client)
    for n, row in enumerate(aged.rows()):
        alone = ssdkit.bench(
            qd=row["qd"], seed=row["seed"], snapshot=str(tmp_path / f"{n}.ssd"), **WRITES
        )
        assert figures(as_dict(alone)).items() <= row.items()


def test_a_steady_drive_is_shared_by_runs_that_differ_in_length(
    client: Any, tmp_path: Path
) -> None:
    steady = {**WRITES, "precondition": "steady", "steady_round": "1s", "qd": 4}
    del steady["ios"]
    done = ssdkit.sweep(steady, {"ios": [500, 1000]}, scheduler=client)
    for n, row in enumerate(done.rows()):
        alone = ssdkit.bench(ios=row["set_ios"], snapshot=str(tmp_path / f"{n}.ssd"), **steady)
        assert row["steady"] is not None
        assert figures(as_dict(alone)).items() <= row.items()


def test_rows_are_in_the_order_of_the_grid_and_nothing_is_run_twice(
    client: Any, tmp_path: Path
) -> None:
    grid = {"qd": [16, 1, 4]}
    first = ssdkit.sweep(READS, grid, scheduler=client, out=tmp_path)
    again = ssdkit.sweep(READS, grid, scheduler="tcp://127.0.0.1:1", out=tmp_path)
    assert (first.ran, first.known, again.ran, again.known) == (3, 0, 0, 3)
    assert first.table.equals(again.table)
    assert [row["qd"] for row in first.rows()] == [16, 1, 4]
    more = ssdkit.sweep(READS, {"qd": [4, 2]}, scheduler=client, out=tmp_path)
    assert (more.ran, more.known) == (1, 1)


def test_damaged_rows_are_an_error_and_never_others(client: Any, tmp_path: Path) -> None:
    grid = {"qd": [16, 1, 4]}
    first = ssdkit.sweep(READS, grid, scheduler=client, out=tmp_path)
    (part,) = (tmp_path / "rows").glob("*.parquet")
    good, told = part.read_bytes(), 0
    for n in range(120):
        bad = bytearray(good)
        bad[n * len(bad) // 120] ^= 1 << n % 8
        part.write_bytes(bad)
        try:
            rows = ssdkit.sweep(READS, grid, scheduler="tcp://127.0.0.1:1", out=tmp_path)
        except (ssdkit.Error, OSError):
            told += 1
        else:
            assert rows.table.equals(first.table), f"a flip at byte {n * len(bad) // 120}"
    assert told > 60


def test_a_failed_run_is_a_row_with_its_error(client: Any, tmp_path: Path) -> None:
    points = [{"drive": DRIVE}, {"drive": f"ssd:{tmp_path}/none.ssd,copy=yes"}]
    base = {"rw": "randread", "ios": 100}
    done = ssdkit.sweep(base, points, scheduler=client)
    good, bad = done.rows()
    assert done.failed == 1 and good["error"] is None and good["iops"] > 0
    assert "none.ssd" in bad["error"] and bad["iops"] is None
    mixed = [{"qd": 1}, {"qd": 0}]
    with pytest.raises(UsageError, match="1 of 2 points cannot be: qd=0.*invalid='row'"):
        ssdkit.sweep(READS, mixed, scheduler=client)
    done = ssdkit.sweep(READS, mixed, scheduler=client, invalid="row")
    assert done.failed == 1 and "0" in done.rows()[1]["error"]


def test_whole_reports_are_kept_where_they_are_wanted(client: Any, tmp_path: Path) -> None:
    plain = ssdkit.sweep(READS, {"qd": [1]}, scheduler=client, out=tmp_path)
    assert "report" not in plain.table.column_names
    kept = ssdkit.sweep(READS, {"qd": [1]}, scheduler=client, out=tmp_path, reports=True)
    report = json.loads(kept.rows()[0]["report"])
    assert kept.ran == 1 and report["ios"] == 500 and "cpu" not in report


def test_frames_are_of_the_same_rows(client: Any) -> None:
    done = ssdkit.sweep(READS, {"qd": [1, 4]}, scheduler=client)
    frame = done.to_pandas()
    assert list(frame["qd"]) == [1, 4] and list(frame["iops"]) == [r["iops"] for r in done.rows()]
    assert done.to_arrow().num_rows == len(done) == 2 and "2 run" in repr(done)


def test_a_knee_is_looked_for_at_each_other_point(client: Any, tmp_path: Path) -> None:
    knee = ssdkit.Knee("qd", ssdkit.Range(1, 64, log=True, integer=True), "iops", points=6, start=3)
    grid = ({"bs": ["4k", "8k"]}, knee)
    done = ssdkit.sweep(READS, grid, scheduler=client, out=tmp_path)
    rows = done.rows()
    for bs in ("4k", "8k"):
        depths = [row["qd"] for row in rows if row["bs"] == bs]
        assert depths == sorted(depths) and 4 <= len(set(depths)) <= 6 and {1, 8, 64} < set(depths)
    again = ssdkit.sweep(READS, grid, scheduler=client, out=tmp_path)
    assert again.ran == 0 and again.table.equals(done.table)
    wrong = ssdkit.Knee("qd", ssdkit.Range(1, 64, integer=True), "iopz", start=3)
    with pytest.raises(UsageError, match="iopz: rows have no such figure"):
        ssdkit.sweep(READS, wrong, scheduler=client)


def have_build(other: str | None) -> None:
    """On a worker: another build, or its own again."""
    from ssdkit import sweep_extra

    own = getattr(sweep_extra, "_own", sweep_extra.build)
    sweep_extra._own = own  # type: ignore[attr-defined]
    sweep_extra.build = own if other is None else lambda: other  # type: ignore[assignment]


def test_a_worker_with_another_build_is_refused_and_named(client: Any) -> None:
    run = run_of(READS, {"qd": 1}, True)
    with pytest.raises(WorkerVersionError, match=r"this sweep 0\.0\.0\+other"):
        perform(run, "0.0.0+other", False, "test")
    worker = min(client.scheduler_info()["workers"])
    client.run(have_build, "0.0.0+other", workers=[worker])
    try:
        with pytest.raises(
            WorkerVersionError, match=r"worker .* has ssdkit .*install the same"
        ) as e:
            ssdkit.sweep(READS, {"qd": [1]}, scheduler=client)
        assert worker in str(e.value) and "0.0.0+other" in str(e.value)
    finally:
        client.run(have_build, None, workers=[worker])


def test_a_worker_with_another_build_that_comes_later_ends_the_sweep(client: Any) -> None:
    run = run_of(READS, {"qd": 1}, True)
    crew = Crew(client, None, CONNECT)
    tasks = iter([(run.key, (run, "0.0.0+other", False, "test"))])
    with pytest.raises(WorkerVersionError, match=r"worker .* and this sweep 0\.0\.0\+other"):
        list(crew.results(perform, tasks, 1))


def test_no_folder_is_an_error(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(UsageError, match="no sweep can write there"):
        ssdkit.sweep(READS, {"qd": [1]}, out=tmp_path / "file")


@pytest.mark.parametrize(
    "address",
    [
        *("", "nonsense", "127.0.0.1", "tcp://127.0.0.1", "tcp://127.0.0.1:x", "tcp://:8786"),
        *("tcp://127.0.0.1:0", "tcp://127.0.0.1:65536", "tcp://127.0.0.1:8786/", "tcp://[::1]"),
        *("http://127.0.0.1:8786", "nonsense://127.0.0.1:1", "tcp://a b:1", "tcp://::1:8786"),
    ],
)
def test_what_is_no_address_is_refused_at_once(address: str) -> None:
    """Before the points are looked at, which cannot be either."""
    with pytest.raises(UsageError, match=r"write its address, as 'tcp://10\.0\.0\.1:8786'"):
        ssdkit.sweep(READS, {"qd": [0]}, scheduler=address)
    with pytest.raises(UsageError, match="write its address"):
        ssdkit.fleet(1, windows=0, scheduler=address)


def test_what_is_no_scheduler_is_refused_at_once() -> None:
    for good in ("a:1", "tcp://a.b-c:8786", "tls://[fe80::1%eth0]:65535", "inproc://1.2.3.4/5/1"):
        Crew(good, None, CONNECT)
    with pytest.raises(TypeError, match="scheduler: a int is none: give an address"):
        ssdkit.sweep(READS, {"qd": [0]}, scheduler=8786)
    for seconds in (0, -1, float("nan"), float("inf")):
        with pytest.raises(UsageError, match="connect_timeout is .*: take seconds, above 0"):
            ssdkit.sweep(READS, {"qd": [0]}, connect_timeout=seconds)


@pytest.mark.parametrize("listens", ["nobody", "a mute", "a babbler"])
def test_a_scheduler_that_does_not_answer_is_given_up_in_time(listens: str) -> None:
    pytest.importorskip("distributed")
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
        if listens == "nobody":
            server.close()
        if listens == "a babbler":
            Thread(target=lambda: server.accept()[0].sendall(b"HTTP/1.1 " * 9), daemon=True).start()
        told = rf"tcp://127\.0\.0\.1:{port}: no scheduler answers there within 0\.2 s: .+connect_timeout"
        # That it ends at all: Dask itself waits for ever for a mute one.
        with pytest.raises(Error, match=told) as e:
            ssdkit.sweep(
                READS, {"qd": [1]}, scheduler=f"tcp://127.0.0.1:{port}", connect_timeout=0.2
            )
        assert not isinstance(e.value, UsageError)


def test_a_folder_has_one_sweep_at_a_time(tmp_path: Path) -> None:
    with Store(tmp_path), pytest.raises(UsageError, match="another sweep writes there"):
        Store(tmp_path)
    with Store(tmp_path):
        pass


def program(text: str, *args: str, **more: Any) -> subprocess.Popen[str]:
    """A Python program of its own, in a group of its own."""
    return subprocess.Popen(
        [sys.executable, "-c", textwrap.dedent(text), *args],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
        **more,
    )


#: Twelve runs of some 0.1 s, in a folder.
SLOW = f"""
    import sys, ssdkit, ssdkit.sweep_store
    ssdkit.sweep_store.SECONDS = 0.1
    if __name__ == "__main__":
        base = {{"drive": "{DRIVE}", "rw": "randwrite", "precondition": "seq", "ios": sys.argv[2]}}
        grid = {{"qd": [1, 4, 16], "seed": [1, 2, 3, 4]}}
        done = ssdkit.sweep(base, grid, out=sys.argv[1], workers=2)
        print(done.ran, done.known)
"""


def ended(running: subprocess.Popen[str]) -> str:
    out, err = running.communicate(timeout=90)
    assert running.returncode == 0, err
    return out


def wait_for(what: Any, seconds: float = 60) -> None:
    until = time.monotonic() + seconds
    while not what():
        assert time.monotonic() < until, "it did not come"
        time.sleep(0.02)


def test_a_killed_sweep_goes_on_and_ends_with_the_same_rows(tmp_path: Path) -> None:
    whole, killed = tmp_path / "whole", tmp_path / "killed"
    assert ended(program(SLOW, str(whole), "40k")) == "12 0\n"
    for _ in range(3):
        running = program(SLOW, str(killed), "40k")
        before = parts(killed)
        wait_for(lambda: parts(killed) >= before + 1 or running.poll() is not None)  # noqa: B023
        os.killpg(running.pid, signal.SIGKILL)
        running.communicate()
        assert not (killed / "result.parquet").exists()
    ran, known = ended(program(SLOW, str(killed), "40k")).split()
    assert int(known) >= 3 and int(ran) + int(known) == 12
    results = [(folder / "result.parquet").read_bytes() for folder in (whole, killed)]
    assert results[0] == results[1]


def test_a_killed_sweep_leaves_nothing_behind_the_next(tmp_path: Path) -> None:
    """Its aged drives, its rows where nobody asked for them, what its workers had."""
    folders = tmp_path / "folders"
    folders.mkdir()
    there = {**os.environ, "TMPDIR": str(folders)}
    del there["SSDKIT_AGED"]
    text = SLOW.replace("out=sys.argv[1], ", "")
    killed = program(text, "", "2M", env=there)
    wait_for(lambda: list(folders.glob("ssdkit-aged-*/*/*.ssd")) or killed.poll() is not None)
    # The sweep alone: its workers are to end by themselves.
    killed.kill()
    killed.communicate()
    left = [each.name.rpartition("-")[0] for each in folders.iterdir()]
    assert sorted(left) == [
        f"ssdkit-aged-{getpass.getuser()}".rpartition("-")[0],
        *["ssdkit-sweep"] * 2,
    ]
    (aged,) = folders.glob("ssdkit-aged-*")

    def nobodys() -> bool:
        for each in aged.iterdir():
            remove(each)
        return not list(aged.iterdir())

    wait_for(nobodys)
    assert ended(program(text, "", "100", env=there)) == "12 0\n"
    assert not list(folders.iterdir())


def test_a_sweep_that_ends_with_an_error_leaves_no_aged_drives(client: Any, tmp_path: Path) -> None:
    """Its workers go on, and are told."""

    def there(place: str) -> bool:
        from ssdkit.sweep_run import _aged_root

        return (_aged_root() / place).exists()

    place = hashlib.sha256(f"{os.uname().nodename}:{tmp_path}".encode()).hexdigest()[:16]
    seen = []

    class Watched(Crew):
        def _check(self) -> None:
            super()._check()
            after = self.after
            assert isinstance(after, partial)
            seen.append(after.args)

    knee = ssdkit.Knee("qd", ssdkit.Range(1, 64, integer=True), "iopz", start=3)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("ssdkit.sweeps.Crew", Watched)
        with pytest.raises(UsageError, match="rows have no such figure"):
            ssdkit.sweep(READS, knee, scheduler=client, out=tmp_path)
    assert seen == [(place,)]
    assert not any(client.run(there, place).values())


def test_a_disk_that_is_full_under_aged_drives_is_no_part_of_a_row(
    client: Any, tmp_path: Path
) -> None:
    def allow(most: int) -> None:
        import resource

        resource.setrlimit(resource.RLIMIT_FSIZE, (most, resource.RLIM_INFINITY))

    rows = tmp_path / "rows"
    client.run(allow, 20_000)
    try:
        full = ssdkit.sweep(WRITES, {"qd": [1]}, scheduler=client, out=rows)
    finally:
        client.run(allow, -1)
    assert full.failed == 1 and "no file of this size" in full.rows()[0]["error"]
    again = ssdkit.sweep(WRITES, {"qd": [1]}, scheduler=client, out=rows)
    assert (again.ran, again.known, again.failed) == (1, 0, 0)


def test_ctrl_c_ends_it_at_once_and_keeps_what_came(tmp_path: Path) -> None:
    running = program(SLOW, str(tmp_path), "300k")
    wait_for(lambda: parts(tmp_path) >= 1)
    asked = time.monotonic()
    os.killpg(running.pid, signal.SIGINT)
    _, err = running.communicate(timeout=60)
    assert time.monotonic() - asked < 20 and running.returncode != 0
    assert "KeyboardInterrupt" in err
    assert not list(Path(os.environ["SSDKIT_AGED"]).iterdir()), "its workers are gone, too"
    with Store(tmp_path) as store:
        rows = store.table().to_pylist()
    assert rows and all(row["error"] is None for row in rows)


FULL = f"""
    import resource, sys, ssdkit, ssdkit.sweep_store
    base = {{"drive": "{DRIVE}", "rw": "randread", "ios": 100}}
    if sys.argv[3] == "full":
        resource.setrlimit(resource.RLIMIT_FSIZE, (2000, resource.RLIM_INFINITY))
    try:
        grid = {{"qd": [1, 2, 3] if sys.argv[3] == "first" else list(range(1, 9))}}
        print(ssdkit.sweep(base, grid, out=sys.argv[1], scheduler=sys.argv[2]))
    except ssdkit.Error as e:
        print(f"Error: {{e}}")
"""


def test_a_full_disk_is_told_and_what_is_there_stays_whole(client: Any, tmp_path: Path) -> None:
    address = client.scheduler.address
    assert "3 run" in ended(program(FULL, str(tmp_path), address, "first"))
    told = ended(program(FULL, str(tmp_path), address, "full"))
    assert "Error: " in told and "no room for more rows; 3 are there, and whole" in told
    assert not list(tmp_path.rglob("*.unfinished"))
    assert "5 run, 3 known" in ended(program(FULL, str(tmp_path), address, "then"))


def test_a_worker_that_is_killed_changes_no_row(tmp_path: Path) -> None:
    """A scheduler and four workers, each a process of its own."""
    address = tmp_path / "scheduler.json"
    dask = [sys.executable, "-m", "distributed.cli"]
    quiet = {"stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL, "cwd": tmp_path}
    scheduler = [
        "dask_scheduler",
        "--port",
        "0",
        "--dashboard-address",
        "127.0.0.1:0",
        "--host",
        "127.0.0.1",
    ]
    worker = ["dask_worker", "--nthreads", "1", "--no-nanny", "--no-dashboard"]
    file = ["--scheduler-file", str(address)]

    def start(what: list[str]) -> subprocess.Popen[bytes]:
        return subprocess.Popen([*dask[:2], f"{dask[2]}.{what[0]}", *what[1:], *file], **quiet)  # type: ignore[call-overload, no-any-return]

    running = [start(scheduler)]
    try:
        wait_for(address.exists)
        running += [start(worker) for _ in range(4)]
        at = json.loads(address.read_text())["address"]
        base = {**WRITES, "ios": "40k"}
        grid = {"qd": [1, 2, 4, 8], "seed": [1, 2, 3]}
        distributed = pytest.importorskip("distributed")
        with distributed.Client(at, set_as_default=False) as client:
            client.wait_for_workers(4, timeout=60)
        for folder in ("whole", "killed"):
            sweep = program(
                """
                import sys, ssdkit, ssdkit.sweep_store
                ssdkit.sweep_store.SECONDS = 0.1
                base, grid = eval(sys.argv[3]), eval(sys.argv[4])
                print(ssdkit.sweep(base, grid, out=sys.argv[1], scheduler=sys.argv[2]))
                """,
                *(str(tmp_path / folder), at, repr(base), repr(grid)),
            )
            if folder == "killed":
                wait_for(lambda: parts(tmp_path / "killed") >= 1)
                running[1].kill()
            assert "12 run, 0 known, 0 failed" in ended(sweep)
        results = [
            (tmp_path / name / "result.parquet").read_bytes() for name in ("whole", "killed")
        ]
        assert results[0] == results[1]
    finally:
        for each in running:
            each.kill()
            each.wait()


def test_the_command_runs_what_a_file_tells(
    client: Any, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    address = client.scheduler.address
    for file in sorted(EXAMPLES.glob("*.toml")):
        assert command.main([str(file), "--scheduler", address, "--out", str(tmp_path)]) == 0
        assert " rows: " in capsys.readouterr().out
    file = EXAMPLES / "depth-spare.toml"
    assert command.main([str(file), "--json", "--out", str(tmp_path)]) == 0
    told = json.loads(capsys.readouterr().out)
    assert len(told["rows"]) == 12 and told["known"] == 12 and told["ran"] == 0


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("", "no [base]"),
        ("[base", "cannot be read"),
        ("[base]\ndrive='mem:tlc'", "nothing changes"),
        ("[base]\n[grids]\nqd=[1]", "grids is no part of a sweep"),
        ("[base]\n[sobol]\nn=4", "sobol.ranges is missing"),
        ("[base]\n[sweep]\nshared=true\n[grid]\nqd=[1]", "sweep.shared is unknown"),
        ("[base]\nrw='randread'\ndrive='mem:tlc'\n[grid]\ndrive.sparse=[1]", "sparse"),
        ("grid=3\n[base]", "write it as a table"),
        ("points=[1]\n[base]", "[points] is 1: write it as a table, [[points]]"),
        ("[base]\n[latin-hypercube]\nn=4\nranges=3", "latin-hypercube.ranges is 3: write it as a"),
        (f"[base]\n[grid]\nqd={'[' * 9}1{']' * 9}", "at most 8 tables and lists"),
        (f"[base]\n[grid]\nqd={'[' * 1000}1{']' * 1000}", "at most 8 tables and lists"),
        (f"[base]\n[grid]\n{'.'.join('a' * 1000)}=1", "at most 8 tables and lists"),
    ],
)
def test_a_file_that_is_no_sweep_is_refused(
    text: str, says: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "sweep.toml"
    file.write_text(text)
    assert command.main([str(file)]) == 2
    assert says in capsys.readouterr().err


@pytest.mark.parametrize("page", ["sweeps.md", "fleets.md"])
def test_the_examples_of_the_pages_run(
    page: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    text = (EXAMPLES.parents[1] / "docs" / page).read_text()
    # So many drives take half a minute.
    text = text.replace("fleet(200, ", "fleet(10, ").replace('"lives")', '"lives", windows=2)')
    monkeypatch.chdir(tmp_path)
    test = doctest.DocTestParser().get_doctest(text, {}, page, page, 0)
    told = doctest.DocTestRunner().run(test)
    assert told.attempted >= 3 and told.failed == 0


def test_replays_are_runs_too(client: Any, tmp_path: Path) -> None:
    trace = EXAMPLES.parents[1] / "docs" / "commands" / "traces" / "msr.csv"
    base = {"drive": DRIVE, "trace": str(trace), "pace": "closed"}
    done = ssdkit.sweep(base, {"qd": [1, 4]}, scheduler=client)
    replay: Any = getattr(ssdkit, "replay", None)
    if replay is None:
        assert all("no replay" in row["error"] for row in done.rows())
        return
    for row in done.rows():
        alone = replay(trace, DRIVE, qd=row["qd"], pace="closed")
        assert figures(as_dict(alone)).items() <= row.items()
