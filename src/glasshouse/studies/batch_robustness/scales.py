"""The grid at each scale: data, networks, settings and batch sizes, and how much of everything."""

from dataclasses import dataclass, replace
from typing import Literal

from glasshouse.studies.batch_robustness.settings import (
    ADVERSARIAL,
    ALL,
    FIXED,
    FIXED_MOMENTUM,
    MAIN,
    SCALED,
    Setting,
)


@dataclass(frozen=True)
class Sizes:
    """How many images are trained on, for how many epochs, and how many each measurement takes.

    Test images: `test` for the clean accuracy, the first `attacked` of them for the attacks, of which
    `probed` for the curvature in pixels. The Hessian is taken over `curved` training images, the same ones
    in every model of a data set.
    """

    train: int
    epochs: int
    test: int
    attacked: int
    curved: int
    probed: int
    precision: Literal["float32", "bfloat16"] = "float32"


@dataclass(frozen=True)
class Row:
    """One data set and network under several settings; `kind` says which part of the study it belongs to."""

    kind: Literal["grid", "longer", "adversarial"]
    data: str
    model: str
    settings: tuple[Setting, ...]
    batches: tuple[int, ...]
    sizes: Sizes


@dataclass(frozen=True)
class Federated:
    """One data set and network trained by FedAvg: `clients` hands, each with batches of `batch`."""

    data: str
    model: str
    settings: tuple[Setting, ...]
    partitions: tuple[str, ...]
    clients: tuple[int, ...]
    batch: int
    sizes: Sizes


def _doubling(first: int, last: int) -> tuple[int, ...]:
    return tuple(first * 2**k for k in range((last // first).bit_length()))


DIGITS = Sizes(train=512, epochs=8, test=600, attacked=200, curved=256, probed=50)
SMALL = Sizes(train=2048, epochs=24, test=2000, attacked=400, curved=512, probed=100)
DENSE = replace(SMALL, epochs=10, curved=256, precision="bfloat16")
COLOUR = replace(SMALL, epochs=5, attacked=250, curved=256, probed=40, precision="bfloat16")
PAPER = Sizes(train=55000, epochs=100, test=10000, attacked=10000, curved=5000, probed=1000)
PAPER_COLOUR = replace(PAPER, train=40000)

LAPTOP_BATCHES = _doubling(32, 1024)
PAPER_BATCHES = _doubling(16, 8192)
PARTITIONS = ("iid", "shards(per_client=2)")

ROWS = {
    "smoke": (
        Row("grid", "digits", "stdcnn", (*MAIN, FIXED_MOMENTUM[-1]), (16, 64, 256), DIGITS),
        Row("adversarial", "digits", "stdcnn", (ADVERSARIAL,), (16, 256), DIGITS),
    ),
    "laptop": (
        Row("grid", "mnist", "stdcnn", ALL, LAPTOP_BATCHES, SMALL),
        Row("grid", "fashion-mnist", "stdcnn", MAIN, LAPTOP_BATCHES, SMALL),
        Row("grid", "mnist", "m1", ALL, LAPTOP_BATCHES, DENSE),
        Row("grid", "fashion-mnist", "m1", MAIN, LAPTOP_BATCHES, DENSE),
        Row("grid", "cifar10", "c1", ALL, LAPTOP_BATCHES, COLOUR),
        Row("adversarial", "mnist", "stdcnn", (ADVERSARIAL,), (32, 128, 512), SMALL),
        Row("longer", "fashion-mnist", "stdcnn", (FIXED, SCALED), (32, 256, 1024), replace(SMALL, epochs=96)),
    ),
    "paper": (
        *(Row("grid", "mnist", model, ALL, PAPER_BATCHES, PAPER) for model in ("m1", "stdcnn")),
        *(Row("grid", "fashion-mnist", model, MAIN, PAPER_BATCHES, PAPER) for model in ("m1", "stdcnn")),
        *(Row("grid", "cifar10", model, ALL, PAPER_BATCHES, PAPER_COLOUR) for model in ("c1", "resnet18")),
        Row("adversarial", "mnist", "stdcnn", (ADVERSARIAL,), PAPER_BATCHES, PAPER),
    ),
}

FEDERATED = {
    "smoke": Federated("digits", "stdcnn", (FIXED,), PARTITIONS, (4, 16), 16, DIGITS),
    "laptop": Federated("fashion-mnist", "stdcnn", (FIXED, SCALED), PARTITIONS, (2, 8, 32), 32, SMALL),
    "paper": Federated("fashion-mnist", "stdcnn", (FIXED, SCALED), PARTITIONS, (2, 8, 32, 128), 64, PAPER),
}
