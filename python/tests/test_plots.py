"""Pictures show the figures that they are of."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from matplotlib.container import BarContainer, ErrorbarContainer

import ssdkit
from ssdkit import plots


@pytest.fixture(scope="module")
def report() -> ssdkit.Report:
    return ssdkit.bench(
        "mem:tlc,size=256M,store=none",
        rw="randrw", qd=8, precondition="seq", time="2500ms", pictures=True,
    )  # fmt: skip


def _x(line: Any) -> list[float]:
    return [float(at) for at in line.get_xdata()]


def _y(line: Any) -> list[float]:
    return [float(at) for at in line.get_ydata()]


def _cells(mesh: Any, like: Any) -> Any:
    return mesh.get_array().reshape(like.shape)


def test_latencies_are_at_their_percentiles(report: ssdkit.Report) -> None:
    axes = plots.latency({"run": report})
    sure, few = axes.lines
    x, y = _x(sure), _y(sure)
    for nines, p in ((1, 90), (2, 99), (3, 99.9)):
        # A step goes up to the first latency of which no more are beyond.
        at = int(np.searchsorted(x, nines - 1e-9))
        assert y[at] == report.histogram().percentile(p)
    assert few.get_linestyle() == "--" and _y(few)[0] == y[-1]
    assert axes.get_yscale() == "log" and axes.get_legend_handles_labels()[1] == ["run"]
    assert [text.get_text() for text in axes.get_xticklabels()][:4] == [
        "0 %",
        "90 %",
        "99 %",
        "99.9 %",
    ]


def test_bands_and_rates_are_the_series(report: ssdkit.Report) -> None:
    series = report.series
    middle = (series["second"] + series["seconds"] / 2).tolist()
    median, worst = plots.bands(report).lines
    assert _x(median) == middle
    assert _y(median) == series["p50"].tolist()
    assert _y(worst) == series["p999"].tolist()
    (line,) = plots.rate([report]).lines
    assert _y(line) == series["iops"].tolist()
    assert plots.rate([report]).get_ylim()[0] == 0


def test_depths_are_in_order() -> None:
    def run(qd: int) -> ssdkit.Report:
        return ssdkit.bench("mem:znand,size=64M", rw="randread", qd=qd, ios=2000)

    runs = {qd: run(qd) for qd in (8, 1, 2)}
    (line,) = plots.depth({"znand": list(runs.values())}).lines
    assert _x(line) == [1, 2, 8]
    assert _y(line) == [runs[qd].iops for qd in (1, 2, 8)]
    # One alone is a point, named or not.
    for one in (runs[8], {"": runs[8]}, [runs[8]]):
        (point,) = plots.depth(one).lines
        assert (_x(point), _y(point)) == ([8], [runs[8].iops])
    paced = ssdkit.bench("mem:znand,size=64M", rw="randread", rate=1000, ios=100)
    with pytest.raises(ssdkit.UsageError, match="has no depth"):
        plots.depth([paced])


def test_bars_are_the_reasons(report: ssdkit.Report) -> None:
    found = report.write_amplification
    assert found is not None
    bars = [of for of in plots.amplification(report).containers if isinstance(of, BarContainer)]
    widths = [bar.patches[0].get_width() for bar in bars]
    assert widths == pytest.approx([found.user, found.gc, found.padding, found.metadata])


def test_maps_are_the_cells(report: ssdkit.Report) -> None:
    dies, chunks = report.dies, report.chunks
    assert dies is not None and chunks is not None and chunks.valid is not None
    (mesh,) = plots.dies(report).collections
    np.testing.assert_array_equal(_cells(mesh, dies.busy), dies.busy)
    (mesh,) = plots.wear(report).collections
    shown = np.ma.filled(_cells(mesh, chunks.erases), -1)
    np.testing.assert_array_equal(shown, np.where(chunks.states == "x", -1, chunks.erases))
    (mesh,) = plots.valid(report).collections
    shown = _cells(mesh, chunks.valid)
    assert (shown.mask == np.isin(chunks.states, ["f", "x"])).all()


def test_what_is_not_told_is_not_drawn() -> None:
    plain = ssdkit.bench("mem:znand,size=64M", rw="randread", ios=100)
    with pytest.raises(ssdkit.UsageError, match="pictures=True"):
        plots.dies(plain)
    with pytest.raises(ssdkit.UsageError, match=r"take ssdkit\.explain"):
        plots.causes(plain)
    assert not plots.amplification(plain).patches
    assert len(plots.bands(plain).lines) == 2, "a row alone is a point"


def test_causes_are_the_whole_time() -> None:
    why = ssdkit.explain("mem:tlc,size=256M", rw="randread", qd=4, precondition="seq", ios=5000)
    axes = plots.causes(why)
    bars = [of for of in axes.containers if isinstance(of, BarContainer)]
    ends = [bar.get_x() + bar.get_width() for bar in bars[-1].patches]
    assert ends == pytest.approx([100] * len(ends))
    assert axes.get_yticklabels()[0].get_text() == "all"


def test_differences_have_their_noise(report: ssdkit.Report) -> None:
    other = ssdkit.bench(
        "mem:tlc,size=256M,store=none,suspend=true",
        rw="randrw", qd=8, precondition="seq", time="6s",
    )  # fmt: skip
    found = ssdkit.compare({"as it is": report, "other": other})
    axes = plots.comparison(found, ["IOPS"])
    (bar,) = [of for of in axes.containers if isinstance(of, ErrorbarContainer)]
    assert _x(bar.lines[0]) == [pytest.approx(other.iops / report.iops)]
    # The mark of the legend is no figure's.
    axes.figure.canvas.draw()
    legend, inside = axes.get_legend(), axes.get_window_extent()
    assert legend is not None and legend.get_window_extent().y1 < inside.y0
    (line,) = plots.comparison(report).lines
    assert _x(line) == [1, 1], "one alone differs from none"
    with pytest.raises(ssdkit.UsageError, match="no figure 'speed': there are IOPS"):
        plots.comparison(found, ["speed"])
