"""Times inversions to the same mean PSNR: as published, and faster, on the same network, images and starts.

The network is the ConvNet of the gradient-inversion papers, trained for a few epochs, with `--width` channels
in its first layer (the papers have 64); the images are CIFAR-10's where GLASSHOUSE_DATA holds them, else the
embedded digits, enlarged. Labels are given and the client runs in eval mode: an upper bound. The attacks take
turns, image by image. The section in docs/benchmarks.md is rewritten.
"""

import argparse
import os
import statistics
from copy import deepcopy
from typing import NamedTuple

import torch
import torch.nn.functional as F
from page import fill
from torch import nn

from glasshouse.access import Protocol
from glasshouse.attacks import ATTACKS
from glasshouse.attacks.attack import Knowledge
from glasshouse.attacks.inversion import descent
from glasshouse.attacks.inversion.updates import AttackedUpdate
from glasshouse.data.images import Images
from glasshouse.data.sources import load
from glasshouse.evidence.reconstruction import Rebuilt
from glasshouse.learning.fit import fit
from glasshouse.learning.layout import Layout, read_vector
from glasshouse.learning.recipe import Recipe
from glasshouse.measures.estimate import mean
from glasshouse.measures.pictures import paired_psnr
from glasshouse.models.convolutional import convolutions

PUBLISHED = "inverting-gradients(labels='given')"
FASTER = "swift-inversion(labels='given')"
CLIENT = Recipe(batch_size=0, lr=1.0, mode="eval")
TRAINING = Recipe(epochs=4, batch_size=32, lr=0.01, momentum=0.9)
TRAINED = 5000
LOOKS = 96
"""How often on its way a search's image is looked at."""


class Course(NamedTuple):
    """The PSNR that an attack on one image had after so many seconds, rising in time."""

    seconds: list[float]
    psnr: list[float]

    def at(self, seconds: float) -> float:
        """What it had by then; at first what it began with."""
        reached = [value for moment, value in zip(self.seconds, self.psnr) if moment <= seconds]
        return reached[-1] if reached else self.psnr[0]


def make_task() -> tuple[str, Images, Images]:
    """The name of the data, images to train on, and images to attack."""
    if os.environ.get("GLASSHOUSE_DATA"):
        data = load("cifar10")
        assert data.test is not None
        return "CIFAR-10", data.train[:TRAINED], data.test[1000:]
    digits = load("digits").train
    large = Images(F.interpolate(digits.x, size=32, mode="bilinear").clamp(0, 1), digits.y, digits.classes)
    return "enlarged digits", large[:-100], large[-100:]


def make_network(width: int, images: Images) -> nn.Module:
    """The ConvNet with `width` channels at first, trained for a few epochs."""
    torch.manual_seed(0)
    widths = (images.shape[0], *(width * factor for factor in (1, 2, 2, 4, 4, 4, 4, 4)))
    layers = convolutions(widths, pooled=(6, 8), pooling=3, normed=True)
    network = nn.Sequential(*layers, nn.Flatten(), nn.Linear(4 * width * 9, images.classes))
    fit(network, read_vector(network), images, TRAINING, seed=0)
    return network.eval()


def update_of(network: nn.Module, image: Images) -> AttackedUpdate:
    """What a client with one image sends."""
    sent = read_vector(network)
    delta = fit(deepcopy(network), sent, image, CLIENT, seed=0) - sent
    protocol = Protocol(network, Layout.of(network), CLIENT, image.shape, image.classes)
    return AttackedUpdate(protocol, 0, sent, delta, (0,), (1,))


def course(rebuilt: Rebuilt, image: Images) -> Course:
    """How the PSNR rose."""
    return Course(
        [snapshot.seconds for snapshot in rebuilt.snapshots],
        [float(paired_psnr(image.x, snapshot.x)[0]) for snapshot in rebuilt.snapshots],
    )


def time_to(courses: list[Course], psnr: float) -> float | None:
    """The seconds after which the mean over images is at least `psnr`; null if it never is."""
    moments = sorted({moment for course in courses for moment in course.seconds})
    means = ((moment, statistics.mean(course.at(moment) for course in courses)) for moment in moments)
    return next((moment for moment, value in means if value >= psnr), None)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--images", type=int, default=8)
    parser.add_argument("--width", type=int, default=16, help="channels of the first layer; the papers': 64")
    parser.add_argument(
        "--attacks", nargs="+", default=[PUBLISHED, FASTER], help="the first is the yardstick"
    )
    options = parser.parse_args()
    torch.set_num_threads(1)
    descent.SHOWN = tuple(place / LOOKS for place in range(LOOKS))
    data, training, attacked = make_task()
    network = make_network(options.width, training)
    courses: dict[str, list[Course]] = {spec: [] for spec in options.attacks}
    for place in range(options.images):
        image = attacked[place : place + 1]
        update, knowledge = update_of(network, image), Knowledge(labels={0: image.label_counts().numpy()})
        for spec, done in courses.items():
            rng = torch.Generator().manual_seed(place)
            done.append(course(ATTACKS.make(spec).rebuild(update, knowledge, rng), image))
            print(
                f"image {place}, {spec}: {done[-1].psnr[-1]:.2f} dB, {done[-1].seconds[-1]:.1f} s", flush=True
            )
    fill("inversion", table(data, options.width, courses))


def table(data: str, width: int, courses: dict[str, list[Course]]) -> str:
    """The table for docs/benchmarks.md: the times to where the first attack ends, and to where all come."""
    count = len(next(iter(courses.values())))
    reached = {spec: mean([one.psnr[-1] for one in done]) for spec, done in courses.items()}
    goals = [next(iter(reached.values())).value, min(end.value for end in reached.values())]
    heads = [f"seconds to {goal:.2f} dB | faster" for goal in dict.fromkeys(goals)]
    rows = [
        f"{data}, ConvNet of width {width}, {count} images one by one, one thread.",
        "",
        f"| attack | mean PSNR at its end, n = {count} | seconds an image | {' | '.join(heads)} |",
        "| --- | --- | --- |" + " --- | --- |" * len(heads),
    ]
    for spec, done in courses.items():
        seconds = statistics.mean(one.seconds[-1] for one in done)
        psnr = f"{reached[spec].value:.2f} dB ({reached[spec].low:.2f} to {reached[spec].high:.2f})"
        times = [compared(courses, spec, goal) for goal in dict.fromkeys(goals)]
        rows.append(f"| `{spec}` | {psnr} | {seconds:.0f} | {' | '.join(times)} |")
    return "\n".join(rows)


def compared(courses: dict[str, list[Course]], spec: str, psnr: float) -> str:
    """The seconds that an attack takes to a mean PSNR, and how many times as many the first one takes."""
    yardstick, there = (time_to(done, psnr) for done in (next(iter(courses.values())), courses[spec]))
    if there is None or yardstick is None:
        return "never | -" if there is None else f"{there:.1f} | -"
    return f"{there:.1f} | {yardstick / there:.1f}x"


if __name__ == "__main__":
    main()
