"""Commands: their options, their errors, and how they are watched and stopped."""

from __future__ import annotations

import contextlib
import fcntl
import math
import os
import pty
import signal
import struct
import subprocess
import sys
import termios
import threading
import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import ssdkit

DRIVE = "mem:znand,size=64M"


def test_options_may_be_of_other_types(tmp_path: Path) -> None:
    page = tmp_path / "run.html"
    report = ssdkit.bench(
        DRIVE, rw="randread", bs=np.int64(4096), ios=np.uint32(2000), qd=None, report=page
    )
    assert report.workload["bs"] == 4096 and report.ios == 2000
    assert page.read_text().startswith("<!")
    jobs = ssdkit.bench(DRIVE, rw="randread", job=["rw=randwrite,qd=2", "rw=randread"], time="5ms")
    assert len(jobs["jobs"]) == 3


@pytest.mark.parametrize(
    ("options", "kind", "words"),
    [
        ({"rw": object()}, TypeError, "rw: a object is no value of an option"),
        ({"rw": {"a": 1}}, TypeError, "rw: a dict is no value"),
        ({"rw": "reads"}, ssdkit.UsageError, "invalid value 'reads' for '--rw"),
        ({"rw": "randread", "colour": 1}, ssdkit.UsageError, "unexpected argument '--colour'"),
        ({}, ssdkit.UsageError, "required"),
        ({"rw": "randread", "qd": -1}, ssdkit.UsageError, "'-1' for '--qd"),
        ({"rw": "randread", "ios": 5, "time": "1s"}, ssdkit.UsageError, "--ios|--time"),
        ({"rw": "randread", "bs": float("nan")}, ssdkit.UsageError, "--bs"),
        ({"rw": "randread", "range": "64M+4k"}, ssdkit.UsageError, "make the range smaller"),
        ({"rw": "a\0b"}, ssdkit.UsageError, "rw"),
    ],
)
def test_wrong_options_are_told(options: dict[str, Any], kind: type[Exception], words: str) -> None:
    with pytest.raises(kind, match=words):
        ssdkit.bench(DRIVE, **options)


@pytest.mark.parametrize(
    "drive", ["mem:nothing", "mem:tlc,size=0", "mem:tlc,colour=1", "mem:", "", "mem:tlc,spare=2"]
)
def test_a_drive_that_cannot_be_is_told(drive: str) -> None:
    with pytest.raises(ssdkit.UsageError):
        ssdkit.bench(drive, rw="randread")
    assert issubclass(ssdkit.DriveError, ssdkit.UsageError)
    assert issubclass(ssdkit.UsageError, ssdkit.Error)


def test_a_drive_error_has_its_kind() -> None:
    with pytest.raises(ssdkit.DriveError, match="no profile"):
        ssdkit.profile("mem:nothing")
    with pytest.raises(ssdkit.DriveError):
        ssdkit.info("mem:tlc,size=64M,groups=3,chunks=1")


def test_requests_that_fail_are_an_error_with_its_report() -> None:
    worn = "mem:tlc,size=64M,endurance=1,endurance_cliff=true"
    with pytest.raises(ssdkit.Error, match="fail") as caught:
        ssdkit.bench(worn, rw="randwrite", time="20s", qd=8)
    report = caught.value.report
    assert report.failed_requests > 0 and report.errors > 0


def test_drive_files_are_made_told_of_and_copied(tmp_path: Path) -> None:
    file, copy = tmp_path / "drive.ssd", tmp_path / "copy.ssd"
    made = ssdkit.create(file, "tlc", size="64M", suspend=True, seed=7)
    assert made["drive"]["profile"]["timing"]["suspend"] is True and made["size_bytes"] == 64 << 20
    with pytest.raises(ssdkit.UsageError, match="force"):
        ssdkit.create(file, "tlc")
    ssdkit.bench(file, rw="write", ios=100, destroy=True)
    with pytest.raises(ssdkit.UsageError, match="--destroy"):
        ssdkit.bench(file, rw="write", ios=100)
    assert ssdkit.snapshot(file, copy)["snapshot"] == str(copy)
    mine, other = ssdkit.info(file), ssdkit.info(copy)
    assert mine["clean"] and mine.keys() == other.keys()
    with pytest.raises(ssdkit.Error):
        ssdkit.info(tmp_path / "none.ssd")


def test_a_trace_is_replayed(tmp_path: Path) -> None:
    trace = tmp_path / "trace.csv"
    line = "128166372003061629,usr,0,{},{},4096,0\n"
    trace.write_text("".join(line.format("Read", 4096 * n) for n in range(50)))
    report = ssdkit.replay(trace, "mem:tlc,size=64M")
    assert report.ios == 50 and report.get("replay")
    why = ssdkit.explain_replay(trace, "mem:tlc,size=64M", what_if=["pus=8"])
    assert why.report.ios == 50 and list(why.what_if) == ["pus=8"] and why.causes.rows
    with pytest.raises(ssdkit.UsageError, match="take explain_replay"):
        ssdkit.replay(trace, "mem:tlc,size=64M", explain=True)
    with pytest.raises(ssdkit.UsageError, match=r"none\.csv"):
        ssdkit.replay(tmp_path / "none.csv", "mem:tlc,size=64M")


def test_a_twin_is_fitted(tmp_path: Path) -> None:
    points, out = tmp_path / "points.csv", tmp_path / "twin.toml"
    points.write_text("rw,bs,qd,iops,mean_us\nrandread,4096,1,13703.8,72.64\n")
    fit = ssdkit.twin(points, family="vnand", fit="read=30us..90us", evaluations=4, out=out)
    (found,) = fit.parameters
    assert found.name == "read" and found.family == "60us" and "read" in repr(fit)
    assert out.read_text() == fit.profile and fit.objective < 0.2
    table = fit.points
    assert table["measured_iops"].tolist() == [13703.8] and table["part"].tolist() == ["used"]
    assert table["predicted_mean_us"][0] == fit["points"][0]["predicted"]["mean_us"]
    assert math.isnan(table["measured_p99_us"][0])
    assert ssdkit.bench(f"mem:{out},size=1G", rw="randread", ios=100).ios == 100
    with pytest.raises(ssdkit.UsageError, match="is there"):
        ssdkit.twin(points, family="vnand", out=out)


def test_a_standard_test_and_a_study_are_run() -> None:
    verdict = ssdkit.test("write-saturation", "mem:tlc,size=64M,store=none", max_time="20s")
    assert verdict["test"] == "write-saturation"
    with pytest.raises(ssdkit.UsageError):
        ssdkit.study("nothing")


def test_profiles_are_told() -> None:
    assert {"tlc", "znand", "ref"} <= set(ssdkit.profiles())
    assert str(ssdkit.profile("tlc", text=True)).count("#") > 3
    with pytest.raises(ssdkit.UsageError):
        ssdkit.profile("nothing")


def test_progress_is_called_and_may_stop_a_run() -> None:
    seen: list[tuple[str, float]] = []
    ssdkit.bench(
        DRIVE, rw="randrw", precondition="seq", time="3s", progress=lambda *of: seen.append(of)
    )
    assert "measuring" in {phase for phase, _ in seen}
    assert all(0 <= part <= 1 for _, part in seen)

    def stop(phase: str, part: float) -> None:
        if phase == "measuring":
            raise LookupError("enough")

    with pytest.raises(LookupError, match="enough") as caught:
        ssdkit.bench(DRIVE, rw="randread", precondition="seq", time="1h", progress=stop)
    assert caught.value.report.interrupted  # type: ignore[attr-defined]


def test_an_explanation_that_is_stopped_has_what_there_is() -> None:
    most = 0.0

    def stop(phase: str, part: float) -> None:
        nonlocal most
        if phase == "measuring" and part < most:
            raise LookupError("the second has begun")
        most = part if phase == "measuring" else most

    # So many that each is looked at several times.
    load: dict[str, Any] = {"rw": "randread", "qd": 8, "precondition": "seq", "ios": 500_000}
    others = ["pus=8", "pus=2"]
    with pytest.raises(LookupError) as caught:
        ssdkit.explain("mem:tlc,size=64M,store=none", what_if=others, progress=stop, **load)
    why = caught.value.report  # type: ignore[attr-defined]
    assert why.report.ios == 500_000 and not why.report.interrupted
    assert "pus=2" not in why.what_if


@pytest.mark.parametrize(
    ("worn", "others", "failed"),
    [
        # Its requests fail, and there is a report of it.
        ("endurance=1", ["pus=4", "endurance=1", "suspend=true"], [False, True, False]),
        # It cannot even be filled: there is none, nor of any behind it.
        ("program_failure=0.02", ["pus=4"], [False]),
    ],
)
def test_what_ifs_are_of_their_own_keys_where_one_fails(
    worn: str, others: list[str], failed: list[bool]
) -> None:
    drive = "mem:tlc,size=64M,groups=1,pus=2,pages=48,store=none,errors=true,failure_power=0.1"
    load: dict[str, Any] = {"rw": "randwrite", "qd": 8, "precondition": "seq", "ios": 60_000}
    asked = ["pus=4", worn, "suspend=true"]
    with pytest.raises(ssdkit.Error, match=f"--what-if {worn}: ") as caught:
        ssdkit.explain(drive + ",endurance_cliff=true", what_if=asked, **load)
    runs = caught.value.report.what_if
    assert list(runs) == others
    assert [run.failed_requests > 0 for run in runs.values()] == failed
    profiles = {key: run.drive["profile"] for key, run in runs.items()}
    assert {key: of["geometry"]["pus"] for key, of in profiles.items()} == {
        key: 4 if key == "pus=4" else 2 for key in others
    }
    assert all(of["timing"]["suspend"] == (key == "suspend=true") for key, of in profiles.items())


def test_ctrl_c_ends_a_replay_of_what_says_nothing(tmp_path: Path) -> None:
    """Standard input before its first byte, and in the middle."""
    program = """
import sys, ssdkit
print("there", flush=True)
ssdkit.replay("-", "mem:tlc,size=64M")
"""
    line = "128166372003061629,usr,0,Read,0,4096,0\n"
    for text in ("", line * 4000):
        with subprocess.Popen(
            [sys.executable, "-c", program],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        ) as running:
            assert running.stdin is not None and running.stdout is not None
            assert running.stdout.readline() == "there\n"
            running.stdin.write(text)
            running.stdin.flush()
            # It sleeps: in its read.
            state = Path(f"/proc/{running.pid}/stat")
            until = time.monotonic() + 60
            while state.read_text().rpartition(")")[2].split()[0] != "S":
                assert time.monotonic() < until
                time.sleep(0.01)
            try:
                # One that comes just before the read wakes nobody; the next one does.
                while running.poll() is None and time.monotonic() < until:
                    running.send_signal(signal.SIGINT)
                    with contextlib.suppress(subprocess.TimeoutExpired):
                        running.wait(1)
                assert running.poll() is not None
            finally:
                running.kill()
            assert running.stderr is not None and "KeyboardInterrupt" in running.stderr.read()


def test_no_bar_where_nobody_looks(capfd: pytest.CaptureFixture[str]) -> None:
    ssdkit.bench(DRIVE, rw="randread", ios=1000, progress=True)
    assert capfd.readouterr() == ("", "")


def test_a_bar_on_a_terminal() -> None:
    mine, its = pty.openpty()
    fcntl.ioctl(its, termios.TIOCSWINSZ, struct.pack("HHHH", 24, 80, 0, 0))
    run = f"import ssdkit; ssdkit.bench({DRIVE!r}, rw='randread', precondition='seq', ios='2M', progress=True)"
    with subprocess.Popen([sys.executable, "-c", run], stderr=its) as process:
        os.close(its)
        seen = b""
        # It ends as an error where nobody has the other side any more.
        with contextlib.suppress(OSError):
            while some := os.read(mine, 4096):
                seen += some
    os.close(mine)
    assert process.returncode == 0
    assert b"measuring:" in seen and b" %" in seen


def test_an_interrupt_stops_a_run_and_the_drive_is_put_away(tmp_path: Path) -> None:
    file = tmp_path / "drive.ssd"
    ssdkit.create(file, "znand", size="64M")
    sent: list[float] = []

    def send(phase: str, part: float) -> None:
        if phase == "measuring" and not sent:
            sent.append(time.monotonic())
            os.kill(os.getpid(), signal.SIGINT)

    with pytest.raises(KeyboardInterrupt) as caught:
        ssdkit.bench(file, rw="randwrite", time="10h", destroy=True, progress=send)
    # No test of speed: it would take hours.
    assert time.monotonic() - sent[0] < 30
    assert caught.value.report.interrupted and caught.value.report.ios > 0  # type: ignore[attr-defined]
    assert ssdkit.info(file)["clean"]
    ssdkit.bench(DRIVE, rw="randread", ios=100)


def test_threads_run_beside_each_other() -> None:
    """With the lock held the first would end before the second could let it."""
    met = threading.Barrier(2, timeout=60)
    reports: list[ssdkit.Report] = []

    def run() -> None:
        seen = False

        def meet(phase: str, part: float) -> None:
            nonlocal seen
            if not seen:
                seen = True
                met.wait()

        reports.append(ssdkit.bench(DRIVE, rw="randread", ios=50_000, progress=meet))

    threads = [threading.Thread(target=run) for _ in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert [report.ios for report in reports] == [50_000] * 2
    assert reports[0]["state_hash"] == reports[1]["state_hash"]


def test_values_that_are_none_of_an_option_are_refused() -> None:
    itself: list[object] = []
    itself.append(itself)
    values: list[Any] = [itself, [[1]], {}, b"1"]
    for value in values:
        with pytest.raises(TypeError):
            ssdkit.bench("mem:null,size=16M", rw="randread", ios=1, qd=value)
    with pytest.raises(UnicodeEncodeError):
        ssdkit.bench("mem:null,size=16M", rw="randread", ios=1, snapshot="\udcff.ssd")
