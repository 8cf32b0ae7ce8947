"""What all tests need."""

from __future__ import annotations

import os
from collections.abc import Iterator
from typing import Any

import pytest

# No picture is shown.
os.environ.setdefault("MPLBACKEND", "agg")


@pytest.fixture(scope="module")
def client() -> Iterator[Any]:
    """Somebody's own scheduler, of two workers."""
    distributed = pytest.importorskip("distributed")
    with (
        distributed.LocalCluster(
            n_workers=2, threads_per_worker=1, processes=True, dashboard_address="127.0.0.1:0"
        ) as cluster,
        distributed.Client(cluster, set_as_default=False) as client,
    ):
        yield client
