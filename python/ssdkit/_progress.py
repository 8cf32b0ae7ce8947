"""A bar for who waits: in a notebook or on a terminal, and nowhere else."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from importlib.util import find_spec
from typing import Any

#: What is called while a run goes on: with what is done, and how much of it, 0 to 1.
Observer = Callable[[str, float], object]
#: True for a bar, or a function of one's own. What it raises ends the run.
Progress = bool | Observer


@contextmanager
def observer(progress: Progress) -> Iterator[Observer | None]:
    """What to call while a run goes on; None where nobody looks."""
    if callable(progress):
        yield progress
        return
    bar = _bar() if progress else None
    if bar is None:
        yield None
        return
    try:
        yield _Shown(bar)
    finally:
        bar.close()


class _Shown:
    """Shows on a bar how far a run is."""

    def __init__(self, bar: Any) -> None:
        self._bar = bar
        self._phase = ""

    def __call__(self, phase: str, part: float) -> None:
        if phase != self._phase:
            self._phase = phase
            self._bar.reset()
            self._bar.set_description_str(phase)
        self._bar.n = round(100 * min(max(part, 0.0), 1.0), 1)
        self._bar.refresh()


def _bar() -> Any:
    """A bar, where there is somewhere to draw one."""
    shape = "{desc}: {percentage:3.0f} % |{bar}| {elapsed}"
    if _in_notebook():
        if find_spec("ipywidgets"):
            from tqdm.notebook import tqdm as widget

            return widget(total=100, bar_format=shape, leave=False)
    elif not sys.stderr.isatty():
        return None
    from tqdm import tqdm

    return tqdm(total=100, bar_format=shape, leave=False)


def _in_notebook() -> bool:
    shell = sys.modules.get("IPython")
    found = shell.get_ipython() if shell else None
    return type(found).__name__ == "ZMQInteractiveShell"
