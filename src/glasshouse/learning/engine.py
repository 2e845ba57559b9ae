"""Many independent jobs at once: clients of a round, shadow models, restarts, cells.

Jobs go through joblib to local processes, Ray or Dask. Each job carries its own seed and results come back in
order, so the numbers do not depend on the number of workers or on the backend.
"""

import itertools
import os
import weakref
from collections.abc import Callable, Iterable, Iterator
from contextlib import AbstractContextManager, ExitStack, nullcontext
from pathlib import Path
from typing import Any, TypeVar

import joblib
import torch

from glasshouse.data.images import Images
from glasshouse.errors import BadInput
from glasshouse.learning.scratch import remove_dead, scratch_folder
from glasshouse.learning.shared import Shared
from glasshouse.learning.workers import Workers
from glasshouse.registry import unknown

Job = TypeVar("Job")
Result = TypeVar("Result")
BACKENDS = ("processes", "ray", "dask")


class Engine:
    """Maps functions over jobs; a context manager, so that what it began ends with it.

    One worker means this process: no copies, easy to debug, the same numbers. What the user should know, as
    that a worker was killed, is told to `say`.
    """

    def __init__(
        self,
        workers: int | None = None,
        backend: str = "processes",
        *,
        say: Callable[[str], None] = lambda line: None,
    ) -> None:
        if workers is not None and workers < 1:
            raise BadInput(f"workers = {workers} is out of range; it must be at least 1")
        if backend not in BACKENDS:
            raise BadInput(unknown("engine", backend, BACKENDS))
        self.workers = workers or os.cpu_count() or 1
        self.backend = backend
        self._say = say
        self._local: Workers | None = None
        self._cluster: Any = None
        self._folder: Path | None = None
        self._open = ExitStack()
        self._names = itertools.count()
        self._images: weakref.WeakKeyDictionary[Images, Shared] = weakref.WeakKeyDictionary()

    def __enter__(self) -> "Engine":
        torch.set_num_threads(1)
        remove_dead()
        with ExitStack() as opening:
            if not self.local:
                opening.enter_context(_cluster(self.backend, self.workers))
                opening.enter_context(joblib.parallel_config(self.backend))
                parallel = joblib.Parallel(self.workers, return_as="list", batch_size=1, max_nbytes=None)
                self._cluster = opening.enter_context(parallel)
            elif self.workers > 1:
                self._folder = opening.enter_context(scratch_folder())
                self._local = Workers(self.workers, self._folder, self._say)
                opening.callback(self._local.end)
            self._open = opening.pop_all()
        return self

    def __exit__(self, *raised: Any) -> None:
        self._local = self._cluster = self._folder = None
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
        if self._local is not None:
            return self._local.map(function, jobs)
        if self._cluster is not None:
            return iter(self._cluster(joblib.delayed(_run)(function, job) for job in jobs))
        return map(function, jobs)

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


def _run(function: Callable[[Job], Result], job: Job) -> Result:
    """Do one job somewhere in a cluster."""
    torch.set_num_threads(1)
    return function(job)


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
