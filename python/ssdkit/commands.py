"""The commands of the command line, as functions.

Options are those of the command, with underscores: `--read-percent 70` is
`read_percent=70`. `True` gives an option that takes no value, `False` and `None` leave it
out, and a list gives it once for each. Sizes and times may be numbers or have units, as
in `bs="4k"` and `time="2s"`.
"""

from __future__ import annotations

import os
from typing import Any, Literal, overload

from ssdkit import _core
from ssdkit._progress import Progress, observer
from ssdkit.explanation import Explanation
from ssdkit.report import Report
from ssdkit.twins import Twin

#: A file's name.
Path = str | os.PathLike[str]


def bench(
    drive: Path, *, pictures: bool = False, progress: Progress = False, **options: Any
) -> Report:
    """Runs a workload on a drive and gives its report, as `ssdkit bench` does.

    With `pictures` the report has how busy each die was. With `progress` a bar is shown on
    a terminal or in a notebook, or a function is called with what is done and how much of
    it. Ctrl-C ends the run: the `report` of the KeyboardInterrupt has what was measured,
    where anything was.

    Raises DriveError for a drive that cannot be, UsageError for options that cannot, and
    Error when requests failed; its `report` then has the run.

    >>> import ssdkit
    >>> report = ssdkit.bench("mem:ref,size=256M", rw="randread", bs="4k", qd=16, ios="20k")
    >>> report.ios
    20000
    >>> ssdkit.bench("mem:ref,size=256M", rw="randread", qd=0)
    Traceback (most recent call last):
    ssdkit.UsageError: invalid value '0' for '--qd <DEPTH>': write a whole number from 1 to 65536
    """
    with observer(progress) as look:
        return _core.bench(os.fspath(drive), options, pictures, look)


def explain(
    drive: Path, *, pictures: bool = False, progress: Progress = False, **options: Any
) -> Explanation:
    """Runs a workload and tells where the time of its requests went, as `ssdkit explain`.

    `what_if=["suspend=true"]` runs it again on a drive that differs in that key. Raises
    what `bench` does; Error also where no drive can be with such a key.
    """
    with observer(progress) as look:
        return _core.explain(os.fspath(drive), options, pictures, look)


def replay(
    trace: Path,
    drive: Path,
    *,
    pictures: bool = False,
    progress: Progress = False,
    **options: Any,
) -> Report:
    """Replays a trace of block requests on a drive, as `ssdkit replay` does.

    Raises UsageError for a trace that cannot be read, and what `bench` does. For why its
    requests took what they took there is `explain_replay`.
    """
    if options.get("explain") or options.get("what_if"):
        raise _core.UsageError("replay gives a report: take explain_replay to have it explained")
    with observer(progress) as look:
        found = _core.replay(os.fspath(trace), os.fspath(drive), options, pictures, look)
    assert isinstance(found, Report)
    return found


def explain_replay(
    trace: Path,
    drive: Path,
    *,
    pictures: bool = False,
    progress: Progress = False,
    **options: Any,
) -> Explanation:
    """Replays a trace and tells where the time of its requests went: `replay --explain`."""
    with observer(progress) as look:
        found = _core.replay(
            os.fspath(trace), os.fspath(drive), options | {"explain": True}, pictures, look
        )
    assert isinstance(found, Explanation)
    return found


def twin(*measurements: Path, family: str, progress: Progress = False, **options: Any) -> Twin:
    """Fits a profile to measurements of a drive, as `ssdkit twin` does.

    Measurements are files: CSV, fio's JSON, or reports. Raises UsageError for measurements
    that cannot be, and where no candidate is a drive.
    """
    files = [os.fspath(file) for file in measurements]
    with observer(progress) as look:
        return Twin(_core.command("twin", files, _json(options, family=family), look))


def profiles() -> list[str]:
    """The names of the built-in profiles.

    >>> import ssdkit
    >>> "tlc" in ssdkit.profiles()
    True
    """
    found: list[str] = _core.command("profiles", [], {"json": True})
    return found


@overload
def profile(name: Path, *, text: Literal[False] = False) -> dict[str, Any]: ...
@overload
def profile(name: Path, *, text: Literal[True]) -> str: ...
def profile(name: Path, *, text: bool = False) -> dict[str, Any] | str:
    """A profile by its name, the path of a TOML file, or the name of a drive in memory.

    Gives its keys and values by section; with `text` its TOML, of a built-in one with the sources of
    its figures. Raises DriveError where there is none.

    >>> import ssdkit
    >>> ssdkit.profile("mem:tlc,suspend=true")["timing"]["suspend"]
    True
    """
    found: dict[str, Any] | str = _core.command("profiles", [os.fspath(name)], {"json": not text})
    return found


def create(file: Path, profile: str, **keys: Any) -> dict[str, Any]:
    """Makes a drive in a file, as `ssdkit create` does, and tells what it is.

    Keys are those of a drive's name (`size="1G"`, `spare=0.2`, `suspend=True`), and the
    options `seed` and `force`, which replaces a drive file that is there. Raises
    DriveError for a drive that cannot be, UsageError where there is a file already.

    >>> import ssdkit, tempfile, pathlib
    >>> folder = tempfile.TemporaryDirectory()
    >>> path = pathlib.Path(folder.name) / "drive.ssd"
    >>> ssdkit.create(path, "znand", size="64M")["size_bytes"]
    67108864
    >>> ssdkit.bench(path, rw="randwrite", ios=1000, destroy=True).ios
    1000
    >>> ssdkit.info(path)["clean"]
    True
    >>> ssdkit.snapshot(path, path.with_name("copy.ssd"))["of"] == str(path)
    True
    >>> folder.cleanup()
    """
    own = {"seed", "force"} & keys.keys()
    given: dict[str, Any] = {name: keys.pop(name) for name in own}
    plain = {name: value for name, value in keys.items() if value is not None}
    words = [f"{name}={_word(value)}" for name, value in plain.items()]
    options = _json(given, profile=profile)
    found: dict[str, Any] = _core.command("create", [os.fspath(file), *words], options)
    return found


def info(drive: Path) -> dict[str, Any]:
    """What a drive file, or a drive in memory, is and how it is; as `ssdkit info`.

    Nothing of a file is changed. Raises Error where somebody has it open for writing, or
    it is damaged.
    """
    found: dict[str, Any] = _core.command("info", [os.fspath(drive)], {"json": True})
    return found


def snapshot(file: Path, copy: Path) -> dict[str, Any]:
    """Copies a drive file that is shut down, as `ssdkit snapshot` does.

    The copy is whole and durable, or is not there. Raises UsageError where there is a file
    of its name, Error where somebody has the drive open for writing.
    """
    files = [os.fspath(file), os.fspath(copy)]
    found: dict[str, Any] = _core.command("snapshot", files, {"json": True})
    return found


def test(name: str, drive: Path, *, progress: Progress = False, **options: Any) -> dict[str, Any]:
    """Runs a standard test by its name, as `ssdkit test` does, and gives its verdict.

    Raises Error where the test fails; its `report` has the verdict.
    """
    with observer(progress) as look:
        found: dict[str, Any] = _core.command(
            "test", [name, os.fspath(drive)], _json(options), look
        )
    return found


def study(name: str, *, progress: Progress = False, **options: Any) -> dict[str, Any]:
    """Measures again what a paper says, as `ssdkit study` does."""
    with observer(progress) as look:
        found: dict[str, Any] = _core.command("study", [name], _json(options), look)
    return found


# Neither is a test of ours.
test.__test__ = False  # type: ignore[attr-defined]


def _json(options: dict[str, Any], **more: Any) -> dict[str, Any]:
    return {**options, **more, "json": True}


def _word(value: Any) -> str:
    """A value as a drive's name has it."""
    return str(value).lower() if isinstance(value, bool) else str(value)
