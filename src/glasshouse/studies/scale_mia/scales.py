"""How much of everything at each scale: networks, data, batches, and how long autoencoders are trained."""

import dataclasses
from dataclasses import dataclass

from glasshouse.attacks.crafted.surrogate import Schooling
from glasshouse.studies.scale_mia.printed import BATCHES, CLASSES, SHARES, SMALL_BATCHES, STARVED_BATCHES
from glasshouse.studies.scale_mia.targets import Target

DATA = ("cifar10", "fashion-mnist", "hmnist")
NARROW = ("alexnet", "resnet", "vit")
"""The networks whose first linear layer has 512 neurons: the paper ends their rows at 512."""


@dataclass(frozen=True)
class Row:
    """A row of Table 4: its target, its batches, and how many samples each of them sees at least."""

    target: Target
    batches: tuple[int, ...]
    samples: int


@dataclass(frozen=True)
class Rivals:
    """Table 3: one network, and for each attack how many rounds each batch size gets at most."""

    target: Target
    attacks: tuple[tuple[str, int], ...]
    batches: tuple[int, ...] = SMALL_BATCHES


@dataclass(frozen=True)
class Scale:
    """All of a scale; `usual` is the target of what goes beyond the paper, at the batch size `batch`."""

    rows: tuple[Row, ...]
    rivals: Rivals
    starved: tuple[Target, ...]
    usual: Target
    samples: int
    starved_batches: tuple[int, ...] = STARVED_BATCHES
    batch: int = 256
    collisions: tuple[int, ...] = (64, 128, 256, 512, 650, 800, 1024)
    noises: tuple[str, ...] = ("0", "1e-06", "1e-05", "0.0001", "0.001", "0.01", "0.1", "1")
    bits: tuple[int, ...] = (8, 10, 12, 14, 16, 18, 22)
    minibatch: int = 8
    rounds: int = 16


def _row(network: str, data: str, schooling: Schooling, samples: int) -> Row:
    batches = BATCHES[:-1] if network in NARROW else BATCHES
    return Row(Target(network, data, schooling), batches, samples)


def _starved(network: str, data: str, schooling: Schooling) -> tuple[Target, ...]:
    """The attackers of Tables 5 and 6, then those of Tables 7 and 8 that are not among them."""
    shares = [Target(network, data, schooling, share=share) for share in SHARES]
    return (*shares, *(Target(network, data, schooling, classes=count) for count in CLASSES[:-1]))


LONG = Schooling(steps=12_000, batch_size=64, lr=3e-3)
SHORT = Schooling(steps=3000, batch_size=64, lr=3e-3)
LAPTOP_SCHOOLING = {
    "alexnet": Schooling(steps=600, batch_size=64, lr=1e-3, half=True),
    "resnet": Schooling(steps=600, batch_size=64, lr=1e-3, half=True),
    "vit": Schooling(steps=300, batch_size=64, lr=5e-4, half=True),
    "vgg": Schooling(steps=250, batch_size=64, lr=1e-3, half=True),
}
LAPTOP_SAMPLES = {"alexnet": 256, "resnet": 256, "vit": 128, "vgg": 128}
"""Large networks see fewer samples, since masking their updates takes seconds."""


def _laptop() -> Scale:
    rows = [_row("cnn", data, LONG, 1024) for data in DATA]
    rows += [
        _row(network, data, schooling, LAPTOP_SAMPLES[network])
        for network, schooling in LAPTOP_SCHOOLING.items()
        for data in DATA
    ]
    rivals = Target("resnet", "cifar10", LAPTOP_SCHOOLING["resnet"])
    return Scale(
        rows=tuple(rows),
        rivals=Rivals(rivals, (("scale-mia", 8), ("robbing-the-fed", 4), ("fishing", 1))),
        starved=_starved("cnn", "cifar10", SHORT),
        usual=rows[0].target,
        samples=1024,
    )


def _paper() -> Scale:
    """The authors' recipe: Adam, with the learning rate of each data set and network."""
    own = {
        "cifar10": Schooling(steps=35_000, batch_size=50, lr=1e-3),
        "fashion-mnist": Schooling(steps=20_000, batch_size=50, lr=1e-4),
        "hmnist": Schooling(steps=35_000, batch_size=50, lr=1e-3),
    }
    other = Schooling(steps=80_000, batch_size=100, lr=1e-4)
    rows = [_row("cnn", data, own[data], 5120) for data in DATA]
    rows += [_row(network, data, other, 5120) for network in (*NARROW, "vgg") for data in DATA]
    attacks = (("scale-mia", 5), ("robbing-the-fed", 5), ("fishing", 5))
    return Scale(
        rows=tuple(rows),
        rivals=Rivals(Target("resnet", "cifar10", other), attacks),
        starved=_starved("alexnet", "cifar10", other),
        usual=rows[0].target,
        samples=5120,
        rounds=80,
    )


def _smoke() -> Scale:
    target = Target("mlp", "digits", Schooling(steps=1, batch_size=64, lr=3e-3))
    deep = Target("cnn", "digits", Schooling(steps=100, batch_size=64, lr=3e-3))
    attacks = (("scale-mia", 1), ("robbing-the-fed", 1), ("fishing(steps=20)", 1))
    return Scale(
        rows=(Row(target, (16, 64), 64), Row(deep, (16,), 32)),
        rivals=Rivals(target, attacks, (1, 16)),
        starved=tuple(dataclasses.replace(target, **own) for own in ({"share": 0.1}, {"classes": 2})),
        starved_batches=(16,),
        usual=target,
        batch=64,
        collisions=(64, 128),
        noises=("0", "1"),
        bits=(8, 22),
        minibatch=4,
        samples=64,
    )


SCALES = {"smoke": _smoke(), "laptop": _laptop(), "paper": _paper()}
