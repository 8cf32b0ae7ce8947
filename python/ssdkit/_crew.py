"""Who runs the tasks of sweeps and fleets: the processes of a Dask cluster."""

from __future__ import annotations

import asyncio
import os
import re
import secrets
import signal
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from threading import Lock, Thread
from types import TracebackType
from typing import Any, TypeVar

from ssdkit._core import Error, UsageError
from ssdkit._folders import temporary
from ssdkit._numbers import real, whole
from ssdkit.sweep_extra import build, optional
from ssdkit.sweep_run import WorkerVersionError

#: Tasks that a worker has at once: one that it is at, and what comes next.
AHEAD = 4

#: How folders begin that are there while a sweep runs.
TEMPORARY = "ssdkit-sweep-"

#: What processes of ours leave: the profiler, which looks a hundred times a second, and looks
#: at themselves that nobody reads. Each wakes a process, which costs a millisecond.
QUIET = {
    "distributed.worker.profile.enabled": False,
    "distributed.admin.tick.interval": "2s",
    "distributed.admin.tick.cycle": "30s",
    "distributed.admin.system-monitor.interval": "30s",
    "distributed.client.scheduler-info-interval": "30s",
    "distributed.scheduler.active-memory-manager.start": False,
}

#: Seconds that a scheduler has for its answer where nobody says otherwise.
CONNECT = 10.0

#: Processes that are started here, at most.
MOST_WORKERS = 4096

#: What Dask talks over. Of ``inproc`` the rest is its own.
SCHEMES = ("tcp", "tls", "ws", "wss", "ucx", "ucxx")
_ADDRESS = re.compile(r"(?:(\w+)://)?(?:\[[^\s\[\]]+\]|[^\s:/\[\]]+):([0-9]{1,5})")

T = TypeVar("T")


def check(scheduler: Any, workers: int | None, connect_timeout: float) -> None:
    """Raises where nobody can be asked so, before anything is.

    >>> check("10.0.0.1", None, 10.0)
    Traceback (most recent call last):
    ssdkit.UsageError: scheduler is '10.0.0.1': write its address, as 'tcp://10.0.0.1:8786'
    """
    if workers is not None:
        whole("workers", workers, 1, MOST_WORKERS)
    if workers is not None and scheduler is not None:
        raise UsageError("workers are started here, and a scheduler has its own: give one of both")
    seconds = "seconds, above 0, up to a day"
    real("connect_timeout", connect_timeout, seconds, lambda long: 0 < long <= 86400)
    if isinstance(scheduler, str):
        found = _ADDRESS.fullmatch(scheduler)
        is_known = found is not None and (found[1] or "tcp") in SCHEMES
        is_port = found is not None and 0 < int(found[2]) < 1 << 16
        if not scheduler.startswith("inproc://") and not (is_known and is_port):
            raise UsageError(
                f"scheduler is {scheduler!r}: write its address, as 'tcp://10.0.0.1:8786'"
            )
    elif scheduler is not None:
        if not all(callable(getattr(scheduler, name, None)) for name in ("submit", "run")):
            raise TypeError(
                f"scheduler: a {type(scheduler).__name__} is none: give an address, as "
                "'tcp://10.0.0.1:8786', or a distributed.Client"
            )
        if (
            getattr(scheduler, "asynchronous", False)
            or getattr(scheduler, "status", "") == "closed"
        ):
            raise UsageError(f"scheduler is {scheduler!r}: give a client that is open, and waits")


def connected(address: str, seconds: float) -> Any:
    """A client of the scheduler there. Raises Error unless it has answered in time."""
    distributed = optional("distributed", "sweep")
    came: list[Any] = []
    lock, is_late = Lock(), False

    def connect() -> None:
        try:
            client = distributed.Client(address, timeout=seconds, set_as_default=False)
        except Exception as e:  # noqa: BLE001  (what answers may be anything)
            came.append(e)
            return
        with lock:
            if not is_late:
                came.append(client)
                return
        client.close()

    # Dask's own limit is of each step, and of one who never says a word there is none.
    thread = Thread(target=connect, daemon=True)
    thread.start()
    try:
        # Its own words are better, where it has any.
        thread.join(seconds + 0.5)
    finally:
        with lock:
            is_late = True
    if came and not isinstance(came[0], Exception):
        return came[0]
    why = came[0] if came else "nothing was said"
    raise Error(
        f"{address}: no scheduler answers there within {seconds:g} s: {why}; look whether it "
        "runs, or give it more by connect_timeout"
    )


class Crew:
    """Who runs tasks: a Dask cluster, which is made when the first task comes. What can be no
    scheduler is refused at once."""

    #: Called by each worker at the end.
    after: Callable[[], None] | None = None

    def __init__(self, scheduler: Any, workers: int | None, connect_timeout: float) -> None:
        check(scheduler, workers, connect_timeout)
        self.scheduler, self.workers = scheduler, workers
        self.connect_timeout = connect_timeout
        self._stack = ExitStack()
        self._client: Any = None

    def __enter__(self) -> Crew:  # noqa: PYI034  (Python 3.10 has no Self)
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        # Who asked for what cannot be has a scheduler that answers; of all else nobody knows.
        answers = kind is None or issubclass(kind, Error)
        if self._client is not None and answers and self.after is not None:
            self._client.run(self.after, on_error="ignore")
        self._stack.__exit__(kind, error, trace)

    def client(self) -> Any:
        """A client whose workers all have this build."""
        if self._client is not None:
            return self._client
        distributed = optional("distributed", "sweep")
        if self.scheduler is None:
            self._client = self._stack.enter_context(self._local(distributed))
        elif isinstance(self.scheduler, str):
            client = connected(self.scheduler, self.connect_timeout)
            self._stack.callback(client.close)
            self._client = client
        else:
            self._client = self.scheduler
        self._check()
        return self._client

    @contextmanager
    def _local(self, distributed: Any) -> Iterator[Any]:
        dask = optional("dask", "sweep")
        # A worker of ours has one thread, and enough memory is for the system to say.
        n = self.workers or len(os.sched_getaffinity(0))
        with (
            temporary(TEMPORARY) as folder,
            dask.config.set({**QUIET, "temporary-directory": str(folder)}),
        ):
            cluster = distributed.LocalCluster(
                n_workers=n,
                threads_per_worker=1,
                processes=True,
                memory_limit=0,
                # Any port that is free: another sweep may have one of its own.
                dashboard_address=os.environ.get("SSDKIT_DASHBOARD", "127.0.0.1:0"),
                silence_logs=50,
                local_directory=str(folder),
                scheduler_sync_interval=30,
            )
            client = distributed.Client(cluster, set_as_default=False)
            try:
                yield client
            except BaseException:
                # Who stops it does not wait for the runs that workers are at.
                _end_workers(cluster)
                raise
            finally:
                # Who does not close in time hides nothing of why it was to end.
                for close in (client.close, cluster.close):
                    with suppress(TimeoutError, asyncio.TimeoutError):
                        close(timeout=2)

    def _check(self) -> None:
        """Raises where a worker has another build, or none."""
        builds = self._client.run(build, on_error="return")
        for worker, has in builds.items():
            if has != build():
                what = has if isinstance(has, str) else f"that cannot be used: {has}"
                raise WorkerVersionError(worker, what, build())

    def results(
        self, task: Callable[..., T], tasks: Iterator[tuple[str, tuple[Any, ...]]], count: int
    ) -> Iterator[tuple[str, T | BaseException]]:
        """What came of tasks, by their names, as they end; an error of Dask's where a task
        ended none of its workers survived it. An error of the task is raised."""
        if count == 0:
            return
        client = self.client()
        distributed = optional("distributed", "sweep")
        futures: dict[Any, str] = {}
        run = secrets.token_hex(4)

        def submit() -> Any:
            name, args = next(tasks, (None, ()))
            if name is None:
                return None
            future = client.submit(task, *args, key=f"{name}-{run}", pure=False)
            futures[future] = name
            return future

        ahead = AHEAD * max(len(client.scheduler_info(n_workers=-1)["workers"]), 1)
        first = [future for future in (submit() for _ in range(ahead)) if future is not None]
        coming = distributed.as_completed(first, loop=client.loop, raise_errors=False)
        try:
            for future in coming:
                name = futures.pop(future)
                failed = future.exception() if future.status == "error" else None
                if isinstance(failed, Error):
                    raise failed
                yield name, failed if failed is not None else future.result()
                future.release()
                following = submit()
                if following is not None:
                    coming.add(following)
        finally:
            if futures:
                client.cancel(list(futures), force=True)


def _end_workers(cluster: Any) -> None:
    """Ends the processes of a cluster of ours."""
    for nanny in cluster.workers.values():
        process = getattr(getattr(nanny, "process", None), "process", None)
        if process is not None and process.pid:
            with suppress(ProcessLookupError):
                os.kill(process.pid, signal.SIGKILL)
