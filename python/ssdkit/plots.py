"""Pictures of runs, with the look of `ssdkit bench --report`; they need Matplotlib.

Each draws into `axes`, or into new ones, and gives these. Runs are one report, several,
or a mapping from names to reports.

>>> import matplotlib
>>> matplotlib.use("agg")
>>> import ssdkit, ssdkit.plots
>>> runs = {
...     f"depth {qd}": ssdkit.bench("mem:znand,size=64M", rw="randread", qd=qd, ios=5000)
...     for qd in (1, 4, 16)
... }
>>> ssdkit.plots.latency(runs).get_ylabel()
'latency'
>>> ssdkit.plots.depth(list(runs.values())).lines[0].get_xdata().tolist()
[1.0, 4.0, 16.0]
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from ssdkit._core import UsageError
from ssdkit.comparison import Comparison, compare
from ssdkit.explanation import Explanation
from ssdkit.histogram import Histogram
from ssdkit.report import Report
from ssdkit.table import needs

if TYPE_CHECKING:
    from matplotlib.axes import Axes

#: One report, several, or several with their names.
Runs = Report | Sequence[Report] | Mapping[str, Report]

#: The colours of runs, in turn.
COLOURS = ("#1f77b4", "#d62a28", "#2ca02c", "#ff7f0e", "#9467bd", "#8c564b", "#e377c2", "#17becf")
#: Why blocks are programmed, by what it is called, in the order of `COLOURS`.
REASONS = {"user": "the host's", "gc": "collection", "padding": "padding", "metadata": "metadata"}
#: Requests that must be beyond a point of the latencies: with fewer the line is dashed.
BEYOND = 10
#: From least to most, of a heat map.
_SHADES = ("#c6dbef", "#08306b")
#: Chunks that are free, open, offline, and closed where nobody says what is valid.
_STATES = {"f": "#ffffff", "o": "#ff7f0e", "x": "#d62a28", "c": "#8c8c8c"}


def latency(runs: Runs, kind: str = "all", axes: Axes | None = None) -> Axes:
    """Latency by the share of requests that took no longer, nine by nine.

    A line is dashed where fewer than 10 requests are beyond it. `kind` is all, reads,
    writes, trims or flushes; of a report from a file there are only all.
    """
    axes = _new(axes)
    most = 1
    for at, (name, run) in enumerate(_named(runs)):
        histogram = run.histogram(kind)
        if histogram.count == 0:
            continue
        most = max(most, histogram.count)
        sure, few = _by_nines(histogram)
        colour = COLOURS[at % len(COLOURS)]
        axes.plot(*sure, color=colour, label=name, drawstyle="steps-pre")
        axes.plot(*few, color=colour, linestyle="--", drawstyle="steps-pre")
    marks = list(range(int(np.log10(most)) + 2))
    axes.set_xticks(marks, [_percent_of(nines) for nines in marks])
    axes.set_xlim(0, max(marks[-1], 1))
    axes.set_xlabel("of all requests" if kind == "all" else f"of all {kind}")
    _log(axes, axes.yaxis, _short_time)
    axes.set_ylabel("latency")
    return _keyed(axes)


def bands(runs: Runs, axes: Axes | None = None) -> Axes:
    """The median and the 99.9th percentile of latency over drive time, and what is between."""
    axes = _new(axes)
    for at, (name, run) in enumerate(_named(runs)):
        series, colour = run.series, COLOURS[at % len(COLOURS)]
        middle = series["second"] + series["seconds"] / 2
        axes.fill_between(middle, series["p50"], series["p999"], color=colour, alpha=0.15, lw=0)
        marker = "o" if len(middle) == 1 else None
        axes.plot(middle, series["p50"], color=colour, label=name, marker=marker)
        axes.plot(middle, series["p999"], color=colour, linestyle="--", marker=marker)
    _log(axes, axes.yaxis, _short_time)
    axes.set_ylabel("latency: median, 99.9 %")
    return _keyed(_over_time(axes))


def rate(runs: Runs, axes: Axes | None = None) -> Axes:
    """Requests a second over drive time."""
    axes = _new(axes)
    for at, (name, run) in enumerate(_named(runs)):
        series = run.series
        middle = series["second"] + series["seconds"] / 2
        marker = "o" if len(middle) == 1 else None
        colour = COLOURS[at % len(COLOURS)]
        axes.plot(middle, series["iops"], color=colour, label=name, marker=marker)
    axes.set_ylim(bottom=0)
    axes.yaxis.set_major_formatter(_written(_short_count))
    axes.set_ylabel("requests a second")
    return _keyed(_over_time(axes))


def depth(runs: Runs | Mapping[str, Report | Sequence[Report]], axes: Axes | None = None) -> Axes:
    """Requests a second by how many are outstanding, a line for each name; one without names.

    Raises UsageError for a run that is no closed loop.
    """
    axes = _new(axes)
    lines = runs if isinstance(runs, Mapping) else {"": runs}
    for at, (name, some) in enumerate(lines.items()):
        several = [some] if isinstance(some, Report) else some
        points = sorted((_depth(run), run.iops) for run in several)
        x, y = zip(*points, strict=True) if points else ((), ())
        axes.plot(x, y, color=COLOURS[at % len(COLOURS)], marker="o", markersize=4, label=name)
    axes.set_xscale("log", base=2)
    axes.xaxis.set_major_formatter(_written(lambda n: f"{n:g}"))
    axes.set_ylim(bottom=0)
    axes.yaxis.set_major_formatter(_written(_short_count))
    axes.set_xlabel("outstanding")
    axes.set_ylabel("requests a second")
    return _keyed(axes)


def amplification(runs: Runs, axes: Axes | None = None) -> Axes:
    """Blocks programmed for each that was written, by reason, a bar for each run.

    A run that wrote nothing has no bar.
    """
    axes = _new(axes)
    named = [(name, run.write_amplification) for name, run in _named(runs)]
    told = [(name, of) for name, of in named if of is not None]
    places, left = np.arange(len(told)), np.zeros(len(told))
    for (reason, label), colour in zip(REASONS.items(), COLOURS, strict=False):
        parts = np.array([getattr(of, reason) for _, of in told], float)
        axes.barh(places, parts, left=left, color=colour, label=label)
        left += parts
    for place, total in zip(places, left, strict=True):
        axes.annotate(f" {total:.3f}", (total, place), va="center")
    axes.set_yticks(places, [name for name, _ in told])
    axes.invert_yaxis()
    axes.margins(x=0.12)
    axes.set_xlim(left=0)
    axes.set_xlabel("blocks programmed for each that was written")
    return _keyed(axes, below=True)


def dies(run: Report, axes: Axes | None = None) -> Axes:
    """How busy each die was over drive time; of a run with `pictures=True`.

    Raises UsageError of another.
    """
    found = run.dies
    if found is None:
        raise UsageError("this run does not tell how busy its dies were: run it with pictures=True")
    axes = _new(axes)
    edges = np.concatenate([[0.0], found.ends])
    lines = np.arange(len(found.busy) + 1)
    most = max(100.0, float(found.busy.max(initial=0.0)))
    mesh = axes.pcolormesh(edges, lines, found.busy, cmap=_shades(), vmin=0, vmax=most)
    _die_names(axes, len(found.busy), found.pus)
    axes.figure.colorbar(mesh, ax=axes, label="of the time, in %")
    return _over_time(axes)


def wear(run: Report, axes: Axes | None = None) -> Axes:
    """How often chunks were erased, a die a line; those offline are red."""
    found = _chunks(run)
    axes = _new(axes)
    erases = np.ma.masked_array(found.erases, found.states == "x")
    return _map(axes, erases, found.pus, "erases", (None, None), bad=_STATES["x"])


def valid(run: Report, axes: Axes | None = None) -> Axes:
    """How much of each chunk is valid, a die a line; free ones are white.

    Raises UsageError where the drive does not tell.
    """
    found = _chunks(run)
    if found.valid is None:
        raise UsageError("this drive does not tell what of its chunks is valid")
    axes = _new(axes)
    shown = np.ma.masked_array(found.valid, np.isin(found.states, ["f", "x"]))
    axes = _map(axes, shown, found.pus, "valid, in %", (0, 100), bad=_STATES["f"])
    for state in ("o", "x"):
        dies, places = np.nonzero(found.states == state)
        if len(dies):
            name = "open" if state == "o" else "offline"
            spots = (places + 0.5, dies + 0.5)
            axes.plot(*spots, "s", color=_STATES[state], markersize=4, label=name)
    return _keyed(axes, below=True)


def comparison(
    runs: Comparison | Runs,
    figures: Sequence[str] | None = None,
    axes: Axes | None = None,
) -> Axes:
    """Figures as multiples of those of the first run, and what they waver by; of one run alone
    there are none.

    A bar reaches over what 95 % of other such runs would give. What is no more than that is
    drawn open. `figures` are names of `Comparison.to_dict`; else all that differ are shown.
    """
    if not isinstance(runs, Comparison):
        runs = compare([runs] if isinstance(runs, Report) else runs)
    found = runs.to_dict()
    names = [run["name"] for run in found["runs"]]
    all_of = {figure["name"]: figure["runs"] for figure in found["figures"]}
    if unknown := [name for name in figures or () if name not in all_of]:
        raise UsageError(f"no figure {unknown[0]!r}: there are {', '.join(all_of)}")
    differ = [name for name, of in all_of.items() if any(_differs(one) for one in of[1:])]
    shown = list(differ if figures is None else figures)
    axes = _new(axes)
    named: set[str] = set()
    step = 0.8 / max(len(names) - 1, 1)
    for run, name in enumerate(names[1:], start=1):
        colour = COLOURS[run % len(COLOURS)]
        for place, figure in enumerate(shown):
            of = all_of[figure][run]
            if of["difference"] is None:
                continue
            times, noise = 1 + of["difference"], of["difference_waver"] or 0.0
            if times <= 0:
                continue
            less, at = min(noise, 0.999 * times), place + (run - 1) * step
            fill = "none" if of["told_apart"] is False else "full"
            axes.errorbar(
                times, at, xerr=[[less], [noise]], color=colour, marker="o", fillstyle=fill,
                capsize=3, linestyle="none", label=name if name not in named else None,
            )  # fmt: skip
            named.add(name)
    axes.axvline(1, color="#999999", linewidth=1)
    _log(axes, axes.xaxis, lambda times: f"x{times:g}")
    axes.set_yticks(range(len(shown)), shown)
    axes.invert_yaxis()
    axes.set_xlabel(f"as a multiple of {names[0]}")
    # Inside, its mark would be read as one more figure.
    return _keyed(axes, below=True)


def causes(run: Report | Explanation, kind: str = "reads", axes: Axes | None = None) -> Axes:
    """Where the time of reads, writes or others went: of all, and of the slowest shares.

    Raises UsageError of a run that was not explained, or has none of that kind.
    """
    table = run.causes
    of_kind = table["kind"] == kind if table.rows else np.zeros(0, bool)
    if not of_kind.any():
        raise UsageError(f"nothing tells where the time of {kind} went: take ssdkit.explain")
    shares: list[float] = list(dict.fromkeys(table["share"][of_kind].tolist()))
    parts: dict[str, NDArray[np.float64]] = {}
    for row in np.nonzero(of_kind)[0]:
        behind = table["behind"][row]
        name = table["part"][row] + (f", behind {behind}" if behind else "")
        line = parts.setdefault(name, np.zeros(len(shares)))
        line[shares.index(table["share"][row])] += table["ns"][row]
    whole = sum(parts.values(), np.zeros(len(shares)))
    ordered = sorted(parts.items(), key=lambda part: -(part[1] / whole).sum())
    told, rest = ordered[: len(COLOURS) - 1], ordered[len(COLOURS) - 1 :]
    if rest:
        told.append(("all others", sum((line for _, line in rest), np.zeros(len(shares)))))
    axes = _new(axes)
    places, left = np.arange(len(shares)), np.zeros(len(shares))
    for (name, line), colour in zip(told, COLOURS, strict=False):
        axes.barh(places, 100 * line / whole, left=left, color=colour, label=name)
        left += 100 * line / whole
    words = ["all" if share == 1 else f"slowest {100 * share:g} %" for share in shares]
    axes.set_yticks(places, words)
    axes.invert_yaxis()
    axes.set_xlim(0, 100)
    axes.set_xlabel(f"of the time of {kind}, in %")
    return _keyed(axes, below=True)


def _new(axes: Axes | None) -> Axes:
    """Axes with the look of the reports."""
    if axes is None:
        plots = needs("matplotlib.pyplot", "plots")
        axes = plots.subplots(figsize=(8.6, 3.8), layout="constrained")[1]
    assert axes is not None
    axes.grid(color="#dddddd", linewidth=1)
    axes.set_axisbelow(True)
    axes.spines[["top", "right"]].set_visible(False)
    return axes


def _keyed(axes: Axes, below: bool = False) -> Axes:
    """With a legend, where there are names."""
    names = [name for name in axes.get_legend_handles_labels()[1] if name]
    if names and below:
        axes.legend(frameon=False, loc="upper center", bbox_to_anchor=(0.5, -0.18), ncols=3)
    elif names:
        axes.legend(frameon=False)
    return axes


def _named(runs: Runs) -> list[tuple[str, Report]]:
    """One alone needs no name."""
    if isinstance(runs, Report):
        return [("", runs)]
    if isinstance(runs, Mapping):
        return list(runs.items())
    return [(f"[{at}]", run) for at, run in enumerate(runs, start=1)]


def _by_nines(
    histogram: Histogram,
) -> tuple[tuple[NDArray[np.float64], ...], tuple[NDArray[np.float64], ...]]:
    """Shares in nines with their latencies: where enough requests are beyond, and the rest."""
    n, all_of = histogram.n.astype(float), float(histogram.count)
    beyond = all_of - np.cumsum(n)
    sure = beyond >= BEYOND
    nines = -np.log10(np.maximum(beyond, 1.0) / all_of)
    times = histogram.ns.astype(float)
    first = np.concatenate([[0.0], nines[sure]])
    start = np.concatenate([times[:1], times[sure]])
    rest = ~sure
    last = (np.concatenate([first[-1:], nines[rest]]), np.concatenate([start[-1:], times[rest]]))
    return (first, start), last


def _depth(run: Report) -> float:
    load = run.workload
    if load.get("rate") is not None or load.get("qd") is None:
        raise UsageError("a run with a rate has no depth: take runs with qd alone")
    return float(load["qd"]) * float(load.get("threads") or 1)


def _differs(of: Mapping[str, Any]) -> bool:
    return of["difference"] is not None and of["difference"] != 0


def _chunks(run: Report) -> Any:
    found = run.chunks
    if found is None:
        raise UsageError("this drive does not tell of its chunks")
    return found


def _map(
    axes: Axes, cells: Any, pus: int, label: str, ends: tuple[float | None, float | None], bad: str
) -> Axes:
    lines, places = np.arange(cells.shape[0] + 1), np.arange(cells.shape[1] + 1)
    mesh = axes.pcolormesh(places, lines, cells, cmap=_shades(bad), vmin=ends[0], vmax=ends[1])
    _die_names(axes, cells.shape[0], pus)
    axes.set_xlabel("chunks")
    axes.figure.colorbar(mesh, ax=axes, label=label)
    return axes


def _die_names(axes: Axes, count: int, pus: int) -> None:
    each = max(1, -(-count // 16))
    at = range(0, count, each)
    names = [f"{die // pus}.{die % pus}" for die in at]
    axes.set_yticks([die + 0.5 for die in at], names)
    axes.set_ylabel("die: group.unit")
    axes.invert_yaxis()
    axes.grid(visible=False)


def _shades(bad: str = "#ffffff") -> Any:
    """From light to dark blue, and of one colour where there is no figure."""
    colours = needs("matplotlib.colors", "plots")
    shades = colours.LinearSegmentedColormap.from_list("shades", _SHADES)
    return shades.with_extremes(bad=bad)


def _over_time(axes: Axes) -> Axes:
    axes.xaxis.set_major_formatter(_written(lambda seconds: _short_time(seconds * 1e9)))
    axes.set_xlim(left=0)
    axes.set_xlabel("drive time")
    return axes


def _log(axes: Axes, axis: Any, words: Callable[[float], str]) -> None:
    """A logarithmic axis, marked between powers of ten where it is short."""
    ticker = needs("matplotlib.ticker", "plots")
    (axes.set_xscale if axis is axes.xaxis else axes.set_yscale)("log")
    axis.set_major_formatter(_written(words))
    low, high = sorted(axis.get_view_interval())
    steps = (1.0,) if high / low >= 1000 else (1.0, 2.0, 5.0)
    axis.set_major_locator(ticker.LogLocator(subs=steps))
    axis.set_minor_locator(ticker.NullLocator())
    axis.set_minor_formatter(ticker.NullFormatter())


def _written(words: Callable[[float], str]) -> Any:
    return needs("matplotlib.ticker", "plots").FuncFormatter(lambda value, _: words(value))


def _short_time(ns: float) -> str:
    for size, unit in ((1e9, "s"), (1e6, "ms"), (1e3, "us")):
        if ns >= size:
            return f"{round(ns / size, 2):g} {unit}"
    return "0 s" if ns <= 0 else f"{round(ns, 2):g} ns"


def _short_count(n: float) -> str:
    for size, unit in ((1e6, " M"), (1e3, " k")):
        if n >= size:
            return f"{round(n / size, 2):g}{unit}"
    return f"{round(n, 2):g}"


def _percent_of(nines: int) -> str:
    digits = max(0, nines - 2)
    return f"{100 * (1 - 10.0**-nines):.{digits}f} %"
