"""The notebooks of the documentation run, and hold what they claim."""

from __future__ import annotations

from pathlib import Path

import nbformat
import pytest
from nbclient import NotebookClient

NOTEBOOKS = sorted((Path(__file__).parents[2] / "docs/notebooks").glob("*.ipynb"))


@pytest.mark.parametrize("path", NOTEBOOKS, ids=[path.stem for path in NOTEBOOKS])
def test_a_notebook_runs(path: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    # Pictures are in the notebook.
    monkeypatch.delenv("MPLBACKEND", raising=False)
    notebook = nbformat.read(path, as_version=4)  # type: ignore[no-untyped-call]
    nbformat.validate(notebook)
    cells = [cell for cell in notebook.cells if cell.cell_type == "code"]
    assert not any(cell.outputs or cell.execution_count for cell in cells), "it is kept without"
    resources = {"metadata": {"path": str(tmp_path)}}
    # One that hangs ends some day; how fast the machine is decides nothing.
    NotebookClient(notebook, timeout=3600, resources=resources).execute()
    assert any(output.output_type == "display_data" for cell in cells for output in cell.outputs)


def test_hot_data_have_no_formula(capsys: pytest.CaptureFixture[str]) -> None:
    """What a notebook says is to be tried can be."""
    (path,) = [path for path in NOTEBOOKS if path.stem == "write-amplification"]
    notebook = nbformat.read(path, as_version=4)  # type: ignore[no-untyped-call]
    assert any('`hot="20:80"` in `measured`' in cell.source for cell in notebook.cells)
    told: dict[str, object] = {}
    for cell in notebook.cells:
        if cell.cell_type == "code":
            # Of a small drive, and no longer than it takes.
            source = cell.source.replace("size=128M", "size=8M").replace('"100k"', '"1k"')
            source = source.replace('precondition="steady"', 'precondition="seq"')
            source = source.replace('rw="randwrite",', 'rw="randwrite", hot="20:80",')
            source = source.replace("        steady_rounds=3,\n", "")
            source = source.replace('        steady_round="1ms",\n', "")
            exec(source, told)  # noqa: S102  (it is our own)
    assert capsys.readouterr().out.count("no formula") == 15


def test_there_are_four() -> None:
    assert len(NOTEBOOKS) == 4
