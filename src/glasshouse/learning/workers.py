"""Local processes that do many jobs at once, and a killed one of which costs no more than its jobs."""

import gc
import itertools
import os
import signal
import warnings
import weakref
from collections.abc import Callable, Generator, Iterable, Iterator
from contextlib import contextmanager
from functools import cache
from multiprocessing import resource_tracker
from pathlib import Path
from typing import Any, TypeVar

import joblib
import torch
from joblib.externals.loky.backend import resource_tracker as loky_tracker
from joblib.externals.loky.process_executor import TerminatedWorkerError

from glasshouse.errors import Fault
from glasshouse.learning.parent import begin
from glasshouse.learning.shared import dump, load

Job = TypeVar("Job")
Result = TypeVar("Result")

ENVIRONMENT = {
    # Large batches otherwise spend a third of their time returning memory to the system and taking it again.
    "MALLOC_MMAP_MAX_": "0",
    "MALLOC_TRIM_THRESHOLD_": "100000000000",
    # Huge pages, where the system grants them: models and their gradients span thousands of small ones.
    "GLIBC_TUNABLES": "glibc.malloc.hugetlb=1",
    # A thread that waits for others sleeps: its core has another worker to serve.
    "OMP_WAIT_POLICY": "PASSIVE",
}


class Workers:
    """`count` processes, whose results travel by files in `folder`: that spares four copies in a pipe.

    What the user should know is told to `say`.
    """

    def __init__(self, count: int, folder: Path, say: Callable[[str], None]) -> None:
        self._count, self._folder, self._say = count, folder, say
        self._numbers = itertools.count()
        self._running: weakref.WeakSet[Generator[Any]] = weakref.WeakSet()
        for key, value in ENVIRONMENT.items():
            os.environ.setdefault(key, value)
        _start_trackers()
        # Without pgrep or psutil on the machine a worker is killed all the same, but not without a traceback.
        warnings.filterwarnings("ignore", "Failed to kill subprocesses", UserWarning)

    def map(self, function: Callable[[Job], Result], jobs: Iterable[Job]) -> Iterator[Result]:
        """`function(job)` for each job, in the order of the jobs; the first begin at once."""
        results = self._results(function, jobs, f"result-{next(self._numbers)}")
        self._running.add(results)
        next(results)
        return results

    def end(self) -> None:
        """Kill the workers that still have a job."""
        for results in list(self._running):
            results.close()

    def _results(self, function: Callable[[Job], Any], jobs: Iterable[Job], stem: str) -> Generator[Any]:
        """None once the first jobs have begun, then the results.

        A job that was handed out waits until its result was: if a worker is killed, all that wait are handed
        out again. Those that were done have their files, and are not done again.
        """
        waiting: dict[int, Job] = {}
        fresh = _noted(jobs, waiting)
        wanted = itertools.count()
        arriving = None
        try:
            for attempt in range(2):
                try:
                    numbered = itertools.chain(list(waiting.items()), fresh)
                    arriving = self._begin(function, numbered, stem)
                    if not attempt:
                        yield None
                    for _, number in zip(arriving, wanted):
                        file = self._file(stem, number)
                        result = load(file)
                        file.unlink()
                        del waiting[number]
                        yield result
                    return
                except TerminatedWorkerError as error:
                    if attempt:
                        raise self._killed() from error
                    self._say("a worker was killed, most likely because memory ran out; its jobs run again")
        finally:
            _close(arriving)
            for number in waiting:
                self._file(stem, number).unlink(missing_ok=True)

    def _begin(
        self, function: Callable[[Job], Any], numbered: Iterable[tuple[int, Job]], stem: str
    ) -> Generator[None]:
        parallel = joblib.Parallel(
            self._count,
            backend="loky",
            return_as="generator",
            batch_size=1,
            max_nbytes=None,
            initializer=begin,
            initargs=(os.getpid(), warnings.formatwarning),
        )
        run = joblib.delayed(_run)
        with _interrupts_for_parent_alone():
            results: Generator[None] = parallel(
                run(function, job, self._file(stem, number)) for number, job in numbered
            )
        return results

    def _file(self, stem: str, number: int) -> Path:
        return self._folder / f"{stem}-{number}"

    def _killed(self) -> Fault:
        return Fault(
            f"workers were killed twice, most likely because memory ran out; lower --workers (it is "
            f"{self._count}) and run the same command again, which goes on where it stopped"
        )


def _start_trackers() -> None:
    """Start the processes that tidy up after workers: later they would undo `_interrupts_for_parent_alone`.

    After a run that a fault ended early joblib's warns of semaphores that are gone already.
    """
    resource_tracker.ensure_running()
    given = os.environ.get("PYTHONWARNINGS")
    os.environ["PYTHONWARNINGS"] = "ignore"
    try:
        loky_tracker.ensure_running()
    finally:
        del os.environ["PYTHONWARNINGS"]
        if given is not None:
            os.environ["PYTHONWARNINGS"] = given


def _noted(jobs: Iterable[Job], waiting: dict[int, Job]) -> Iterator[tuple[int, Job]]:
    """The jobs and their numbers; those that were taken are in `waiting`."""
    for number, job in enumerate(jobs):
        waiting[number] = job
        yield number, job


def _run(function: Callable[[Job], Any], job: Job, file: Path) -> None:
    """Do one job in a worker, unless one that was killed had done it."""
    if file.exists():
        return
    if torch.get_num_threads() != 1:
        torch.set_num_threads(1)
    result = function(job)
    _settle()
    dump(result, file)


@cache
def _settle() -> None:
    """Keep what the first job imported out of later collections: joblib's workers collect every second."""
    gc.collect()
    gc.freeze()


@contextmanager
def _interrupts_for_parent_alone() -> Iterator[None]:
    """Ctrl-C goes to every process of a terminal; those that start in here leave it to their parent."""
    before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


def _close(arriving: Generator[None] | None) -> None:
    """End the jobs that still run; joblib warns of them, of which a user who stopped them knows."""
    if arriving is not None:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            arriving.close()
