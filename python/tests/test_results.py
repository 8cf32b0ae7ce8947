"""What a run gives: the same figures in every form, and without a copy."""

from __future__ import annotations

import json
import os
import pickle
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import ssdkit
from ssdkit._report_form import FORM

MIXED: dict[str, Any] = {
    "rw": "randrw",
    "qd": 8,
    "precondition": "seq",
    "ios": 30_000,
    "slowest": 4,
}


@pytest.fixture(scope="module")
def report() -> ssdkit.Report:
    return ssdkit.bench("mem:tlc,size=256M", pictures=True, **MIXED)


def test_attributes_are_what_the_json_says(report: ssdkit.Report) -> None:
    found = report.to_dict()
    assert (report.ios, report.iops) == (found["ios"], found["iops"])
    assert report.reads is not None and report.writes is not None
    assert report.reads.ios + report.writes.ios == report.ios == 30_000
    assert report.reads.latency.p99 == found["read"]["latency_ns"]["p99"]
    assert report.write_amplification is not None
    assert report.write_amplification.total == found["write_amplification"]["total"]
    assert report.void is None and not report.interrupted
    assert json.loads(report.to_json()) == found
    assert "nothing" not in report and report.get("nothing", 7) == 7


def test_histograms_have_the_percentiles(report: ssdkit.Report) -> None:
    reads, writes = report.reads, report.writes
    assert reads is not None and writes is not None
    for kind, of in (("all", report.latency), ("reads", reads.latency), ("writes", writes.latency)):
        histogram = report.histogram(kind)
        assert histogram.count == of.n
        told = [(50, of.p50), (90, of.p90), (99, of.p99), (99.9, of.p999), (100, of.max)]
        assert all(histogram.percentile(p) == ns for p, ns in told if ns is not None), kind
        assert histogram.ns[0] >= of.min and np.all(np.diff(histogram.ns.astype(float)) > 0)
    assert report.histogram("trims").percentile(50) is None
    with pytest.raises(ValueError, match="'others' is no kind of request"):
        report.histogram("others")
    with pytest.raises(ValueError, match="101 is no percentile"):
        report.histogram().percentile(101)


def test_the_series_sums_to_the_whole() -> None:
    report = ssdkit.bench("mem:znand,size=64M", rw="randrw", precondition="seq", time="2500ms")
    series = report.series
    assert series["ios"].sum() == report.ios
    assert series["seconds"].sum() == pytest.approx(report.seconds)
    rows = report["series"]
    assert series.rows == len(rows) == 3
    assert series["programmed_user"].tolist() == [row["programmed"]["user"] for row in rows]
    assert np.isnan(series["programmed_folds"]).all(), "of a drive without it is not known"


def test_frames_stand_on_the_same_memory(report: ssdkit.Report) -> None:
    series = report.series
    assert series is report.series, "it is made once"
    arrow, pandas = series.arrow(), series.pandas()
    assert arrow.num_rows == len(pandas) == series.rows
    assert list(pandas) == arrow.column_names == list(series)
    for name, column in series.items():
        assert np.shares_memory(column, pandas[name].to_numpy()), name
        (chunk,) = arrow[name].chunks
        assert chunk.buffers()[1].address == column.ctypes.data, name
    ns = report.histogram().table().arrow()["ns"].chunks[0]
    assert ns.buffers()[1].address == report.histogram().ns.ctypes.data


def test_frames_say_what_installs_them(
    report: ssdkit.Report, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(__import__("sys").modules, "pandas", None)
    with pytest.raises(ImportError, match=r"pandas is not installed: pip install 'ssdkit\[frames"):
        report.series.pandas()
    needing: dict[str, Callable[[], object]] = {
        "distributed": lambda: ssdkit.sweep({"drive": "mem:znand,size=64M"}, {"rw": ["randread"]}),
        "pyarrow": lambda: ssdkit.fleet(1, windows=1, bursts=1),
    }
    for module, asks in needing.items():
        monkeypatch.setitem(__import__("sys").modules, module, None)
        missing = rf"{module} is not installed: pip install 'ssdkit\[sweep"
        with pytest.raises(ImportError, match=missing):
            asks()


def test_stories_sum_to_their_latency(report: ssdkit.Report) -> None:
    assert len(report.slowest) == 4
    for slow in report.slowest:
        assert sum(part.ns for part in slow.parts) == slow.latency_ns
    stories = report.stories
    first = stories["request"] == 0
    assert stories["ns"][first].sum() == report.slowest[0].latency_ns == report.latency.max
    assert report.tails.rows > 0 and report.causes.rows == 0


def test_causes_sum_to_their_time() -> None:
    why = ssdkit.explain("mem:tlc,size=256M", rw="randread", precondition="seq", ios=5_000)
    causes = why.causes
    whole = causes["ns"][causes["share"] == 1.0].sum()
    mean = why.report.latency.mean
    assert mean is not None and whole == pytest.approx(mean * 5_000)
    assert "reads" in str(why) and why.what_if == {}


def test_dies_and_chunks_are_arrays(report: ssdkit.Report) -> None:
    dies, chunks = report.dies, report.chunks
    assert dies is not None and chunks is not None and chunks.valid is not None
    geometry = ssdkit.profile("tlc")["geometry"]
    assert dies.busy.shape == (geometry["groups"] * geometry["pus"], len(dies.ends))
    assert 0 < dies.busy.mean() <= 100 and dies.ends[-1] == pytest.approx(report.seconds, rel=0.1)
    assert chunks.states.shape == chunks.erases.shape == chunks.valid.shape
    assert set(np.unique(chunks.states)) <= set("focx")


def test_a_report_goes_between_processes_and_files(report: ssdkit.Report, tmp_path: Path) -> None:
    again = pickle.loads(pickle.dumps(report))
    assert again.to_dict() == report.to_dict()
    for kind in ("all", "reads", "flushes"):
        assert again.histogram(kind).n.tolist() == report.histogram(kind).n.tolist()
    for name, column in report.series.items():
        np.testing.assert_array_equal(again.series[name], column)

    report.save(tmp_path / "run.json")
    loaded = ssdkit.Report.load(tmp_path / "run.json")
    assert loaded.to_dict() == report.to_dict()
    near = loaded.histogram().percentile(99)
    assert near == pytest.approx(report.latency.p99, rel=0.13)
    assert loaded.histogram().count == report.ios
    with pytest.raises(ssdkit.UsageError, match="no latencies of reads alone"):
        loaded.histogram("reads")


#: A value of another kind than any that a report has at the same place.
OTHERS: list[Any] = [None, True, -1, 1.5, 10**400, "x", [None], {}]


def damaged(found: Any, path: tuple[Any, ...], value: Any) -> Any:
    """A copy of it, where one of its values is another, or gone."""
    again = json.loads(json.dumps(found))
    at = again
    for step in path[:-1]:
        at = at[step]
    if value is ...:
        del at[path[-1]]
    else:
        at[path[-1]] = value
    return again


def places(found: Any, path: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    """All places in it; of a list the first alone."""
    if path:
        yield path
    steps: Iterable[tuple[Any, Any]] = ()
    if isinstance(found, dict):
        steps = found.items()
    elif isinstance(found, list):
        steps = enumerate(found[:1])
    for step, value in steps:
        yield from places(value, (*path, step))


def all_of(report: ssdkit.Report) -> None:
    """Looks at all that it has."""
    names = [name for name in dir(ssdkit.Report) if not name.startswith("_")]
    for name in names:
        if isinstance(getattr(ssdkit.Report, name), property):
            getattr(report, name)
    for table in (report.series, report.stories, report.causes, report.tails):
        assert table.rows >= 0
    assert report.histogram().count >= 0 and str(report) and repr(report)
    assert report._repr_html_()


def test_a_report_that_is_damaged_says_where(tmp_path: Path) -> None:
    """Whatever of it is gone, or of another kind, or it is as good as before."""
    why = ssdkit.explain("mem:znand,size=64M", rw="randrw", ios=400, pictures=True, slowest=1)
    full = why.report.to_dict()
    found = {key: full[key] for key in FORM if key in full}
    found |= {"drive": {"name": "mem:znand"}, "workload": {"rw": "randrw", "qd": 1}}
    for lines in ("states", "erases", "valid"):
        found["chunks"][lines] = found["chunks"][lines][:2]
    found["dies"]["busy"] = found["dies"]["busy"][:2]
    path, told, kept = tmp_path / "run.json", 0, 0
    for place in places(found):
        for value in (..., *OTHERS):
            path.write_text(json.dumps(damaged(found, place, value)))
            try:
                all_of(ssdkit.Report.load(path))
                kept += 1
            except ssdkit.UsageError as error:
                told += 1
                assert "run.json: " in str(error), (place, value)
    assert told > 1000 and kept > 0
    texts = {}
    for place, value in [
        (("latency_ns", "p99"), "soon"),
        (("series", 0, "ios"), ...),
        (("slowest", 0, "parts", 0, "ns"), -1),
        (("explained", "reads", 0, "share"), None),
        (("chunks", "erases"), ["1 2", "3"]),
    ]:
        path.write_text(json.dumps(damaged(found, place, value)))
        with pytest.raises(ssdkit.UsageError) as caught:
            ssdkit.Report.load(path)
        texts[place[0]] = str(caught.value).partition(str(tmp_path / "run.json: "))[2]
    mend = ": the report is damaged; run it again, by ssdkit bench --json"
    assert texts == {
        "latency_ns": f"latency_ns.p99 is 'soon', and a whole number is wanted{mend}",
        "series": f"series[0].ios is missing, and a whole number is wanted{mend}",
        "slowest": f"slowest[0].parts[0].ns is -1, and a whole number is wanted{mend}",
        "explained": f"explained.reads[0].share is None, and a number is wanted{mend}",
        "chunks": "chunks.erases is ['1 2', '3'], and a list of texts, each of as many numbers "
        f"is wanted{mend}",
    }


def test_a_report_of_a_part_has_that(report: ssdkit.Report) -> None:
    """As those that a sweep keeps; and one of a later version has more."""
    found = report.to_dict()
    part = ssdkit.Report({key: found[key] for key in ("ios", "latency_ns", "read")})
    assert part.ios == report.ios and part.latency == report.latency and part.gc is None
    with pytest.raises(ssdkit.UsageError, match="the report: cpu is missing"):
        _ = part.cpu
    with pytest.raises(KeyError):
        part["cpu"]
    later = ssdkit.Report({**found, "cpu": {**found["cpu"], "joules": 7}})
    assert later.cpu == report.cpu


def test_all_kinds_of_reports_are_read(tmp_path: Path) -> None:
    trace = tmp_path / "trace.csv"
    trace.write_text("".join(f"{n},usr,0,Read,{4096 * n},4096,0\n" for n in range(9)))
    runs = [
        ssdkit.bench("null:", rw="randread", ios=100),
        ssdkit.bench("mem:znand,size=64M", rw="randread", ios=100, precondition="none"),
        ssdkit.bench("mem:tlc,size=64M", rw="randwrite", rate="1k", time="50ms"),
        ssdkit.bench("mem:tlc,size=64M", rw="read", job=["rw=randwrite,qd=2"], time="5ms"),
        ssdkit.bench("mem:znand,size=64M", rw="randread", ios=100, clock="real"),
        ssdkit.replay(trace, "mem:tlc,size=64M"),
    ]
    for n, run in enumerate(runs):
        path = tmp_path / f"{n}.json"
        run.save(path)
        all_of(ssdkit.Report.load(path))
        # Of another name than a text can be.
        other = os.fsencode(path) + b"\xff"
        os.rename(path, other)
        all_of(ssdkit.Report.load(os.fsdecode(other)))


@pytest.mark.parametrize(
    "text", ["", "{}", "[1]", '{"ios": 1}', "\x00", "[" * 100_000, "7", "\ud800"]
)
def test_what_is_no_report_is_refused(text: str, tmp_path: Path) -> None:
    path = tmp_path / "no.json"
    path.write_bytes(text.encode(errors="surrogatepass"))
    with pytest.raises(ssdkit.UsageError, match=r"no\.json"):
        ssdkit.Report.load(path)


def test_it_is_shown(report: ssdkit.Report) -> None:
    assert str(report).startswith(repr(report)) and "latency" in repr(report)
    assert "p99.9" in report._repr_html_() and "<script" not in report._repr_html_()
    loaded = ssdkit.Report({**report.to_dict(), "drive": {"name": "<b>"}})
    assert "&lt;b&gt;" in loaded._repr_html_() and repr(loaded).startswith("<b>: ")
    void = ssdkit.bench("mem:znand,size=64M", rw="randread", ios=100, precondition="none")
    assert void.void is not None
    assert "void" in void._repr_html_() and "VOID" in repr(void)


def test_the_same_seed_is_the_same_run() -> None:
    def run(seed: int) -> dict[str, object]:
        found = ssdkit.bench("mem:tlc,size=64M", rw="randrw", ios=2_000, seed=seed).to_dict()
        return {key: found[key] for key in ("state_hash", "latency_ns", "series")}

    assert run(1) == run(1) != run(2)


def test_runs_are_compared(report: ssdkit.Report, tmp_path: Path) -> None:
    report.save(tmp_path / "run.json")
    other = ssdkit.bench("mem:tlc,size=256M,suspend=true", **MIXED)
    found = ssdkit.compare([tmp_path / "run.json", other])
    figures = {figure["name"]: figure["runs"] for figure in found.to_dict()["figures"]}
    assert figures["IOPS"][1]["difference"] == pytest.approx(other.iops / report.iops - 1)
    table = found.table().pandas().set_index(["figure", "run"])
    assert table.difference.loc["IOPS"].tolist()[1] == figures["IOPS"][1]["difference"]
    assert found.page().startswith("<!") and "IOPS" in str(found)
    with pytest.raises(ValueError, match="0 reports"):
        ssdkit.compare([])
