import os
import tempfile
from pathlib import Path

import numpy as np
import pytest
import torch
from hypothesis import HealthCheck, settings
from hypothesis.configuration import set_hypothesis_home_dir
from torch import nn

from glasshouse.data.images import Images
from glasshouse.data.split import Split
from glasshouse.federation.strategies.strategy import ServerState
from glasshouse.learning.engine import Engine
from glasshouse.learning.layout import Layout, read_vector
from glasshouse.registry import newly_imported

SHAPE, CLASSES = (1, 8, 8), 4

set_hypothesis_home_dir(Path(tempfile.gettempdir()) / f"hypothesis-{os.getuid()}")  # not in the repository
# Every run tries the same examples, so that a test which passed once passes again; `wide` draws others.
settings.register_profile(
    "same",
    derandomize=True,
    database=None,
    deadline=None,
    max_examples=50,
    suppress_health_check=list(HealthCheck),
)
settings.register_profile("wide", settings.get_profile("same"), derandomize=False)
settings.load_profile(os.environ.get("GLASSHOUSE_FUZZ", "same"))


def make_images(count: int, seed: int = 0) -> Images:
    """Noisy stripes whose place tells their class: easy to learn, impossible to learn by luck."""
    rng = torch.Generator().manual_seed(seed)
    y = torch.arange(count) % CLASSES
    x = 0.4 * torch.rand(count, *SHAPE, generator=rng)
    for position, label in enumerate(y.tolist()):
        x[position, :, 2 * label : 2 * label + 2] += 0.5
    return Images(x, y, CLASSES)


def make_split(sizes: tuple[int, ...] = (30, 20, 10), others: int = 40) -> Split:
    """Clients of the given sizes and three further parts of `others` images each."""
    ends = np.cumsum([*sizes, others, others, others])
    parts = np.split(np.random.default_rng(0).permutation(ends[-1]), ends[:-1])
    return Split(make_images(int(ends[-1])), tuple(parts[: len(sizes)]), *parts[len(sizes) :])


def make_model(seed: int = 0) -> nn.Module:
    """A small convolutional network with batch norm and dropout: buffers and randomness are in play."""
    torch.manual_seed(seed)
    return nn.Sequential(
        nn.Conv2d(1, 4, 3, padding=1),
        nn.BatchNorm2d(4),
        nn.ReLU(),
        nn.Flatten(),
        nn.Dropout(0.1),
        nn.Linear(256, 16),
        nn.ReLU(),
        nn.Linear(16, CLASSES),
    )


def make_plain_model(seed: int = 0) -> nn.Module:
    """A network without batch norm and dropout: its gradient over a set is the mean over its parts."""
    torch.manual_seed(seed)
    return nn.Sequential(nn.Flatten(), nn.Linear(64, 16), nn.ReLU(), nn.Linear(16, CLASSES))


def make_server(
    model: nn.Module | None = None, sizes: tuple[int, ...] = (30, 20, 10), **entries
) -> ServerState:
    """What a server has in the first round, or in another one where `entries` say so."""
    module = make_model() if model is None else model
    known = {
        "module": module,
        "layout": Layout.of(module),
        "shape": SHAPE,
        "classes": CLASSES,
        "sizes": sizes,
        "images": make_images(40, seed=7),
        "seed": 0,
        "number": 0,
        "vector": read_vector(module),
    }
    return ServerState(**known | entries)


@pytest.fixture
def engine():
    with Engine(1) as running:
        yield running


@pytest.fixture(autouse=True)
def nothing_imported_yet():
    """Commands name the modules of a user's that they imported, and not those of the tests before."""
    newly_imported()


def pytest_addoption(parser):
    parser.addoption("--no-skips", action="store_true", help="fail if a test is skipped")


def pytest_runtest_setup(item):
    if item.get_closest_marker("real_data") and not os.environ.get("GLASSHOUSE_DATA"):
        pytest.skip("GLASSHOUSE_DATA does not name the folder of the real sets")


def pytest_sessionfinish(session):
    skipped = session.config.pluginmanager.get_plugin("terminalreporter").stats.get("skipped")
    if skipped and session.config.getoption("--no-skips"):
        session.exitstatus = pytest.ExitCode.TESTS_FAILED
