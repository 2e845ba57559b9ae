"""Seeds: that of a job follows from the seed of the run and the address of the job."""

import zlib
from collections.abc import Iterator
from contextlib import contextmanager

import numpy as np
import torch


def derive(seed: int, *path: str | int) -> int:
    """A seed for the job at `path`, independent of all other paths, of the worker and of the time.

    >>> derive(0, "round", 1) == derive(0, "round", 1) != derive(0, "round", 2)
    True
    """
    return int(_sequence(seed, path).generate_state(1, np.uint64)[0] >> 1)


def numpy_rng(seed: int, *path: str | int) -> np.random.Generator:
    """A NumPy generator for the job at `path`."""
    return np.random.default_rng(_sequence(seed, path))


def torch_rng(seed: int, *path: str | int) -> torch.Generator:
    """A torch generator for the job at `path`."""
    return torch.Generator().manual_seed(derive(seed, *path))


def numpy_from(rng: torch.Generator) -> np.random.Generator:
    """A NumPy generator that continues from a torch one."""
    return np.random.default_rng(int(torch.randint(2**31, (1,), generator=rng)))


@contextmanager
def numpy_seeded(rng: torch.Generator) -> Iterator[None]:
    """For foreign code that draws from NumPy's global generator: seeds it from `rng`, and then restores it.

    >>> with numpy_seeded(torch_rng(0)):
    ...     first = np.random.random()
    >>> with numpy_seeded(torch_rng(0)):
    ...     first == np.random.random()
    True
    """
    before = np.random.get_state()
    np.random.seed(int(torch.randint(2**32, (1,), generator=rng)))
    try:
        yield
    finally:
        np.random.set_state(before)


def _sequence(seed: int, path: tuple[str | int, ...]) -> np.random.SeedSequence:
    key = [zlib.crc32(part.encode()) if isinstance(part, str) else part for part in path]
    return np.random.SeedSequence(seed, spawn_key=key)
