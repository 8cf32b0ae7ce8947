"""What a run gives: the same figures in every form, and without a copy."""

from __future__ import annotations

import json
import pickle
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import ssdkit

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


@pytest.mark.parametrize("text", ["", "{}", "[1]", '{"ios": 1}', "\x00"])
def test_what_is_no_report_is_refused(text: str, tmp_path: Path) -> None:
    path = tmp_path / "no.json"
    path.write_text(text)
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
