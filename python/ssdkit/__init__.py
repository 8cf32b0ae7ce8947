"""A solid-state drive in software."""

from ssdkit._core import DriveError, Error, UsageError, __version__, bench

__all__ = ["DriveError", "Error", "UsageError", "__version__", "bench"]
