"""Profiles fitted to measurements of a drive."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from ssdkit._core import in_words
from ssdkit.table import Table

#: What of a point is compared.
_FIGURES = ("iops", "mean_us", "p50_us", "p99_us")


@dataclass(frozen=True, slots=True)
class Parameter:
    """A key of the profile that was searched."""

    name: str
    #: What was searched, as it was asked for.
    asked: str
    #: What it is in the profile that the search began with; None where it has none.
    family: str | None
    #: What fits best, with its unit.
    value: str
    #: Whether the points tell it; else its value means nothing.
    determined: bool
    #: Whether it is at an end of what was searched.
    at_end: bool


class Twin:
    """A profile fitted to measurements, and how far it is off.

    What else the JSON of `ssdkit twin` has is `twin["key"]`.
    """

    def __init__(self, found: dict[str, Any]) -> None:
        self._found = found

    def to_dict(self) -> dict[str, Any]:
        """All of it, as `ssdkit twin --json` prints it."""
        return self._found

    def __getitem__(self, key: str) -> Any:
        return self._found[key]

    @property
    def profile(self) -> str:
        """The fitted profile: a TOML text, as `out="FILE.toml"` writes it."""
        return str(self["profile"])

    @property
    def parameters(self) -> tuple[Parameter, ...]:
        """What was searched, and what was found."""
        names = Parameter.__match_args__
        return tuple(Parameter(**{name: of[name] for name in names}) for of in self["parameters"])

    @property
    def objective(self) -> float:
        """How far all figures are off, in the weighted mean of |ln (predicted / measured)|."""
        return float(self["objective"])

    @property
    def converged(self) -> bool:
        """Whether more candidates would bring no more."""
        return bool(self["converged"])

    @property
    def points(self) -> Table:
        """Each point, what was measured, and what the twin does.

        Columns: `drive`, `path`, `rw`, `direction`, `bs`, `qd`, `read_percent`, `part` (used,
        kept_back, extrapolated), and `measured_` and `predicted_` of `iops`, `mean_us`,
        `p50_us`, `p99_us`.
        """
        texts, numbers = ("drive", "path", "rw", "direction", "part"), ("bs", "qd", "read_percent")
        names: dict[str, type] = dict.fromkeys(texts, str) | dict.fromkeys(numbers, float)
        kinds = ("measured", "predicted")
        names |= {f"{kind}_{figure}": float for kind in kinds for figure in _FIGURES}

        def number(value: float | None) -> float:
            return float("nan") if value is None else float(value)

        rows = [
            (
                *(str(point[name]) for name in texts),
                *(number(point[name]) for name in numbers),
                *(number(point[kind].get(figure)) for kind in kinds for figure in _FIGURES),
            )
            for point in self["points"]
        ]
        return Table.of_rows(names, rows)

    def __repr__(self) -> str:
        lines = [
            f"twin of {self['drive']}, family {self['family']}: objective {self.objective:.3f}"
        ]
        for of in self.parameters:
            doubts = [
                word
                for word, is_so in (
                    ("not determined", not of.determined),
                    ("at an end of its range", of.at_end),
                )
                if is_so
            ]
            lines.append(f"{of.name:<16}{of.value:>12}  {', '.join(doubts)}".rstrip())
        groups = self["groups"]
        if groups and groups[0]["iops"]:
            off = 100 * groups[0]["iops"]["median"]
            count = in_words("count", groups[0]["points"])
            lines.append(
                f"{groups[0]['group']}: {count} points, IOPS off by {off:.1f} % in the median"
            )
        return "\n".join(lines)
