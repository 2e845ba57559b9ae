"""Many independent jobs at once: clients of a round, shadow models, restarts, cells.

Jobs go through joblib to local processes, Ray or Dask. Each job carries its own seed and results come back in
order, so the numbers do not depend on the number of workers or on the backend.
"""

import gc
import itertools
import os
import tempfile
import uuid
import weakref
from collections.abc import Callable, Iterable, Iterator
from contextlib import AbstractContextManager, ExitStack, nullcontext
from functools import cache
from pathlib import Path
from typing import Any, TypeVar

import joblib
import torch

from glasshouse.data.images import Images
from glasshouse.errors import BadInput
from glasshouse.learning.shared import Shared
from glasshouse.registry import unknown

Job = TypeVar("Job")
Result = TypeVar("Result")
BACKENDS = ("processes", "ray", "dask")

WORKER_ENVIRONMENT = {
    # Large batches otherwise spend a third of their time returning memory to the system and taking it again.
    "MALLOC_MMAP_MAX_": "0",
    "MALLOC_TRIM_THRESHOLD_": "100000000000",
    # Huge pages, where the system grants them: models and their gradients span thousands of small ones.
    "GLIBC_TUNABLES": "glibc.malloc.hugetlb=1",
    # A thread that waits for others sleeps: its core has another worker to serve.
    "OMP_WAIT_POLICY": "PASSIVE",
}


class Engine:
    """Maps functions over jobs; a context manager, so that its workers end with it.

    One worker means this process: no copies, easy to debug, the same numbers.
    """

    def __init__(self, workers: int | None = None, backend: str = "processes") -> None:
        if workers is not None and workers < 1:
            raise BadInput(f"workers = {workers} is out of range; it must be at least 1")
        if backend not in BACKENDS:
            raise BadInput(unknown("engine", backend, BACKENDS))
        self.workers = workers or os.cpu_count() or 1
        self.backend = backend
        self._parallel: Any = None
        self._folder: Path | None = None
        self._open = ExitStack()
        self._names = itertools.count()
        self._images: weakref.WeakKeyDictionary[Images, Shared] = weakref.WeakKeyDictionary()

    def __enter__(self) -> "Engine":
        torch.set_num_threads(1)
        local = self.backend == "processes"
        if local and self.workers == 1:
            return self
        if local:
            for key, value in WORKER_ENVIRONMENT.items():
                os.environ.setdefault(key, value)
            self._folder = Path(self._open.enter_context(tempfile.TemporaryDirectory(prefix="glasshouse-")))
        else:
            self._open.enter_context(_cluster(self.backend, self.workers))
        self._open.enter_context(joblib.parallel_config("loky" if local else self.backend))
        # Only local processes can hand results over one by one.
        returned = "generator" if local else "list"
        parallel = joblib.Parallel(self.workers, return_as=returned, batch_size=1, max_nbytes=None)
        self._parallel = self._open.enter_context(parallel)
        return self

    def __exit__(self, *raised: Any) -> None:
        self._parallel = self._folder = None
        self._open.__exit__(*raised)

    def __reduce__(self) -> tuple[Any, ...]:
        """In a worker, which is one of many, an engine has that worker alone."""
        return Engine, (1,)

    @property
    def local(self) -> bool:
        """Whether all workers see the files of this machine."""
        return self.backend == "processes"

    def map_local(self, function: Callable[[Job], Result], jobs: Iterable[Job]) -> Iterator[Result]:
        """As `map`, for jobs that read and write files of this machine: on a cluster they run here."""
        return self.map(function, jobs) if self.local else map(function, jobs)

    def map(self, function: Callable[[Job], Result], jobs: Iterable[Job]) -> Iterator[Result]:
        """`function(job)` for each job, in the order of the jobs."""
        if self._parallel is None:
            return map(function, jobs)
        results = self._parallel(joblib.delayed(_run)(function, job, self._folder) for job in jobs)
        return (result.take() for result in results)

    def share_images(self, images: Images) -> Shared:
        """A handle to `images`, written once however often it is asked for."""
        if self._folder is None:
            return Shared.inline(images)  # keeping the handle would keep the images for ever
        if images not in self._images:
            self._images[images] = self.share(images)
        return self._images[images]

    def share(self, value: Any) -> Shared:
        """A handle to `value` that many jobs can carry cheaply; each worker reads it once."""
        if self._folder is None:
            return Shared.inline(value)
        return Shared.in_file(value, self._folder / str(next(self._names)))


def _run(function: Callable[[Job], Result], job: Job, folder: Path | None) -> Shared:
    """Do one job in a worker; its result travels by file, which spares large ones four copies in a pipe."""
    if torch.get_num_threads() != 1:
        torch.set_num_threads(1)
    result = function(job)
    _settle()
    return Shared.inline(result) if folder is None else Shared.in_file(result, folder / uuid.uuid4().hex)


@cache
def _settle() -> None:
    """Keep what the first job imported out of later collections: joblib's workers collect every second."""
    gc.collect()
    gc.freeze()


def _cluster(backend: str, workers: int) -> AbstractContextManager[Any]:
    """The cluster that the environment names (RAY_ADDRESS, DASK_SCHEDULER_ADDRESS), or a local one."""
    try:
        if backend == "ray":
            from ray.util.joblib import register_ray

            register_ray()
            return nullcontext()
        from distributed import Client

        named = "DASK_SCHEDULER_ADDRESS" in os.environ
        client: AbstractContextManager[Any] = (
            Client() if named else Client(n_workers=workers, threads_per_worker=1, dashboard_address=None)
        )
        return client
    except ImportError as error:
        raise BadInput(
            f"engine {backend!r} is not installed ({error}); run pip install 'glasshouse[{backend}]'"
        ) from error
