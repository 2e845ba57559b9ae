"""The grid at each scale, and every choice that the paper leaves open."""

from dataclasses import dataclass, replace
from typing import Any

from glasshouse.learning.recipe import Recipe
from glasshouse.studies.fed_fsnet.rows import ABLATIONS, AFL, ALL, FEDAVG, FSNET, PAPERS, RECALL, UPPER, Row


@dataclass(frozen=True)
class Sizes:
    """How many devices there are, what is held out, and how many images each measurement takes.

    `held_out` training images are the server's own, and what an adversary may know. Membership is asked of
    `nonmembers` and of as many images of devices that took part; `attacked` test images are moved.
    """

    devices: int
    held_out: int
    nonmembers: int
    test: int
    local_test: int
    attacked: int


@dataclass(frozen=True)
class Task:
    """One data set and network: the fractions of devices a round, the rounds, and the lines of its tables.

    `options` are those in which a strategy differs from its defaults at this scale.
    """

    data: str
    model: str
    fractions: tuple[float, ...]
    rounds: int
    rows: tuple[Row, ...]
    sizes: Sizes
    ablations: tuple[Row, ...] = ()
    epochs: int = 10
    batch: int = 60
    lr: float = 0.01
    options: tuple[tuple[str, tuple[tuple[str, Any], ...]], ...] = ()

    @property
    def recipe(self) -> Recipe:
        """How devices train."""
        return Recipe(epochs=self.epochs, batch_size=self.batch, lr=self.lr)

    def spec(self, row: Row) -> str:
        """A row's strategy as users type it."""
        return row.spec(dict(self.options).get(row.strategy, ()))

    def lines(self, fraction: float) -> tuple[Row, ...]:
        """The rows at a fraction; where all devices take part AFL is FedAvg, and has none."""
        return tuple(row for row in self.rows if fraction < 1 or row is not AFL)

    def head(self, fraction: float) -> str:
        """What the names of its cells have in common."""
        return f"{self.data}/{self.model}/f-{fraction}"


WHOLE = Sizes(devices=100, held_out=2000, nonmembers=2000, test=8000, local_test=500, attacked=300)
DIGITS = Sizes(devices=20, held_out=100, nonmembers=200, test=400, local_test=100, attacked=50)
SMALL_FEDDF = (("feddf", (("steps", 400), ("patience", 100))),)
TINY = (("feddf", (("steps", 40), ("patience", 20))), ("fed-fsnet", (("every", 3),)))

GREY = Task("fashion-mnist", "mlp", (0.1,), 50, ALL, WHOLE, ABLATIONS, options=SMALL_FEDDF)

TASKS = {
    "smoke": (
        Task(
            "digits",
            "mlp",
            (0.25,),
            8,
            ALL,
            DIGITS,
            ABLATIONS[-2:],
            epochs=3,
            batch=10,
            lr=0.05,
            options=TINY,
        ),
    ),
    "laptop": (
        replace(GREY, data="mnist", rows=(*PAPERS, RECALL), ablations=()),
        GREY,
        replace(GREY, data="cifar10", rounds=20, rows=(*PAPERS, RECALL), ablations=()),
        replace(GREY, model="lenet", rounds=15, rows=(UPPER, FEDAVG, FSNET), ablations=()),
    ),
    "paper": (
        Task("mnist", "lenet", (0.1, 1.0), 50, ALL, WHOLE),
        Task("fashion-mnist", "lenet", (0.1, 1.0), 50, ALL, WHOLE, ABLATIONS),
        Task("cifar10", "stdcnn", (0.1, 1.0), 50, ALL, WHOLE),
    ),
}
