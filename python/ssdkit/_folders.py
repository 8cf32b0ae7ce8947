"""Folders for as long as their users live.

Each user of such a folder has a share of the lock of a file in it, which the kernel takes
away from a process that dies, however it does. So a folder whose lock can be had alone is
nobody's any more, and whoever comes next removes it; how old it is does not matter.
"""

from __future__ import annotations

import fcntl
import os
import shutil
import stat
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

#: The file whose lock says that somebody uses the folder.
OWNER = ".owner"
#: Others may remove a folder between its making and its lock, but not so often.
TRIES = 100


class Held:
    """A folder that is there until `release`, or the end of this process."""

    def __init__(self, folder: Path) -> None:
        """Makes the folder where it is not there. Raises OSError."""
        self.folder = folder
        self._lock: int | None = _locked(folder)

    def release(self) -> None:
        """Lets go of it; others may have it still. A second time it does nothing."""
        lock, self._lock = self._lock, None
        if lock is not None:
            os.close(lock)


def _locked(folder: Path) -> int:
    """Makes a folder, and takes a share of its lock: the descriptor that has it."""
    for left in reversed(range(TRIES)):
        try:
            folder.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
            folder.mkdir(mode=0o700, exist_ok=True)
            lock = os.open(folder / OWNER, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW, 0o600)
        except FileNotFoundError:
            # Somebody took it for nobody's, as it was not locked yet.
            if not left:
                raise
            continue
        # A file system without locks has nobody who could take it away either.
        with suppress(OSError):
            fcntl.flock(lock, fcntl.LOCK_SH)
        if _is_at(lock, folder / OWNER):
            return lock
        os.close(lock)
    raise FileNotFoundError(f"{folder}: others remove it again and again")


def _is_at(descriptor: int, path: Path) -> bool:
    """Whether an open file is still the one of this name."""
    with suppress(OSError):
        return os.path.samestat(os.fstat(descriptor), os.lstat(path))
    return False


def remove(folder: Path) -> None:
    """Removes a folder of ours if nobody has it."""
    with suppress(OSError):
        about = folder.lstat()
        if not stat.S_ISDIR(about.st_mode) or about.st_uid != os.getuid():
            return
        try:
            lock = os.open(folder / OWNER, os.O_RDWR | os.O_NOFOLLOW)
        except FileNotFoundError:
            # Its maker died before it had a lock, and put nothing in; else it is not ours.
            folder.rmdir()
            return
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            if _is_at(lock, folder / OWNER):
                _empty(folder)
        finally:
            os.close(lock)


def _empty(folder: Path) -> None:
    """Removes all of a folder; what says whose it is goes last, so that who is killed
    meanwhile leaves a folder that the next can remove."""
    for each in folder.iterdir():
        if each.name == OWNER:
            continue
        if each.is_dir() and not each.is_symlink():
            shutil.rmtree(each)
        else:
            each.unlink()
    (folder / OWNER).unlink()
    folder.rmdir()


def clear(parent: Path, pattern: str) -> None:
    """Removes of the folders of these names those that nobody has any more."""
    for folder in parent.glob(pattern):
        remove(folder)


@contextmanager
def temporary(prefix: str) -> Iterator[Path]:
    """A folder that goes again; those of this prefix that others left go at once."""
    clear(Path(tempfile.gettempdir()), f"{prefix}*")
    held = Held(Path(tempfile.mkdtemp(prefix=prefix)))
    try:
        yield held.folder
    finally:
        held.release()
        remove(held.folder)
