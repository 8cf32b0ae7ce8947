"""The pages of documentation: their examples run, and what is made is current."""

from __future__ import annotations

import doctest
import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parent))
import reference

DOCS = Path(__file__).parents[2] / "docs"


def test_the_reference_is_current() -> None:
    text = reference.PAGE.read_text(encoding="utf-8")
    assert text == reference.page(), "run: python python/tests/reference.py"


@pytest.mark.parametrize("name", ["python.md"])
def test_examples_of_pages_run(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    options = doctest.NORMALIZE_WHITESPACE | doctest.ELLIPSIS
    found = doctest.testfile(str(DOCS / name), module_relative=False, optionflags=options)
    assert found.attempted > 0 and found.failed == 0
