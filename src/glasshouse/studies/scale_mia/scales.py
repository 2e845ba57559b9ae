"""The scales of the study: networks, data, batches, and how long autoencoders are trained."""

import dataclasses
from collections.abc import Mapping
from dataclasses import dataclass

from glasshouse.attacks.crafted.surrogate import Schooling
from glasshouse.studies.scale_mia import printed, rivals
from glasshouse.studies.scale_mia.printed import BATCHES, STARVED_BATCHES
from glasshouse.studies.scale_mia.rivals import Rival
from glasshouse.studies.scale_mia.scenarios import RoundPlan, Scenario

DATA = ("cifar10", "fashion-mnist", "hmnist")
NARROW = ("alexnet", "resnet", "vit")
"""The networks whose first linear layer has 512 neurons: the paper ends their rows at 512."""


@dataclass(frozen=True)
class GridRow:
    """A row of Table 4: its scenario, its batches, and the samples and rounds each of them has at least."""

    scenario: Scenario
    batches: tuple[int, ...]
    samples: int
    rounds: int = 1

    def seen(self, batch: int) -> int:
        """The samples that are seen in batches of this size."""
        return max(self.samples, self.rounds * batch)


@dataclass(frozen=True)
class Scale:
    """All of a scale.

    `usual` is the scenario of what goes beyond the paper, at the batch size `batch`, for so many `samples`.
    No cell has more than `most` rounds.
    """

    rows: tuple[GridRow, ...]
    rivals: tuple[Rival, ...]
    starved: tuple[Scenario, ...]
    usual: Scenario
    samples: int
    starved_samples: int
    head_samples: int
    most: int = 32
    starved_batches: tuple[int, ...] = STARVED_BATCHES
    batch: int = 256
    collisions: tuple[int, ...] = (64, 128, 256, 512, 650, 800, 1024)
    noises: tuple[str, ...] = ("0", "1e-06", "1e-05", "0.0001", "0.01", "1")
    bits: tuple[int, ...] = (8, 10, 12, 14, 18)
    head_batches: tuple[int, ...] = BATCHES
    head_bits: tuple[int, ...] = (16, 22, 30)
    minibatch: int = 8

    @property
    def plan(self) -> RoundPlan:
        """The rounds of what goes beyond the paper."""
        return RoundPlan(self.batch, self.samples, self.most)

    @property
    def scenarios(self) -> list[Scenario]:
        """All whose autoencoders are trained, each once."""
        of_rivals = [rival.scenario for rival in self.rivals if rival.closed]
        known = [*(row.scenario for row in self.rows), *self.starved, self.usual, *of_rivals]
        return list(dict.fromkeys(known))


def _rows(network: str, schoolings: Mapping[str, Schooling], samples: int, rounds: int = 1) -> list[GridRow]:
    batches = BATCHES[:-1] if network in NARROW else BATCHES
    return [
        GridRow(Scenario(network, data, schooling), batches, samples, rounds)
        for data, schooling in schoolings.items()
    ]


def _starved(network: str, data: str, schooling: Schooling) -> tuple[Scenario, ...]:
    """The attackers of Tables 5 and 6, then those of Tables 7 and 8 that are not among them."""
    shares = [Scenario(network, data, schooling, share=share) for share in printed.AMOUNTS[5]]
    classes = printed.AMOUNTS[7][:-1]
    return (*shares, *(Scenario(network, data, schooling, classes=int(count)) for count in classes))


def _laptop() -> Scale:
    """The CNN is trained in full; of the other networks those that take the published attack come first.

    They leave out HMNIST, by which no rate can be judged, and those that refuse the published attack have
    CIFAR-10 alone. Tables 5 to 8 have the CNN, and their ends the paper's AlexNet: all images and a hundredth
    of them.
    """

    def schooled(steps: int, lr: float) -> Schooling:
        return Schooling(steps=steps, batch_size=64, lr=lr, half=True)

    longest = Schooling(steps=12_000, batch_size=64, lr=3e-3)
    grey_too = DATA[:2]
    rows = (
        *_rows("cnn", dict.fromkeys(DATA, longest), 2048, rounds=16),
        *_rows("alexnet", dict.fromkeys(grey_too, schooled(3000, 1e-3)), 512),
        *_rows("resnet", {"cifar10": schooled(800, 1e-3)}, 512),
        *_rows("vit", {"cifar10": schooled(600, 5e-4)}, 512),
        *_rows("vgg", dict.fromkeys(grey_too, schooled(2000, 1e-3)), 256),
    )
    by_network = {(row.scenario.network, row.scenario.data): row.scenario for row in rows}
    cnn, alexnet = (by_network[network, "cifar10"] for network in ("cnn", "alexnet"))
    return Scale(
        rows=rows,
        rivals=rivals.laptop(by_network["resnet", "cifar10"], cnn),
        starved=(*_starved("cnn", "cifar10", longest), alexnet, dataclasses.replace(alexnet, share=0.01)),
        usual=cnn,
        samples=1024,
        starved_samples=1024,
        starved_batches=(16, 64, 256),
        head_samples=2048,
    )


def _paper() -> Scale:
    """The authors' recipe: Adam, with the learning rate of each data set and network."""
    longest = Schooling(steps=80_000, batch_size=100, lr=1e-4)
    usual, shorter = (Schooling(steps=n, batch_size=50, lr=lr) for n, lr in ((35_000, 1e-3), (20_000, 1e-4)))
    rows = _rows("cnn", {"cifar10": usual, "fashion-mnist": shorter, "hmnist": usual}, 8192, rounds=16)
    for network in (*NARROW, "vgg"):
        rows += _rows(network, dict.fromkeys(DATA, longest), 5120)
    return Scale(
        rows=tuple(rows),
        rivals=rivals.paper(Scenario("resnet", "cifar10", longest), rows[0].scenario),
        starved=_starved("alexnet", "cifar10", longest),
        usual=rows[0].scenario,
        samples=5120,
        starved_samples=5120,
        head_samples=5120,
        most=128,
    )


def _smoke() -> Scale:
    scenario = Scenario("mlp", "digits", Schooling(steps=1, batch_size=64, lr=3e-3))
    deep = Scenario("cnn", "digits", Schooling(steps=100, batch_size=64, lr=3e-3))
    return Scale(
        rows=(GridRow(scenario, (16, 64), 64), GridRow(deep, (16,), 32)),
        rivals=rivals.smoke(scenario, deep, dataclasses.replace(scenario, network="resnet")),
        starved=(dataclasses.replace(scenario, share=0.1), dataclasses.replace(scenario, classes=2)),
        starved_batches=(16,),
        usual=scenario,
        batch=64,
        collisions=(64, 128),
        noises=("0", "1"),
        bits=(8, 18),
        head_batches=(16, 64),
        head_bits=(22,),
        minibatch=4,
        samples=64,
        starved_samples=64,
        head_samples=64,
    )


SCALES = {"smoke": _smoke(), "laptop": _laptop(), "paper": _paper()}
