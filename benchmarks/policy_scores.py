"""Times S_pri of one policy: all points of several images in one batch, and in a plain loop over points.

    python benchmarks/policy_scores.py [--networks lenet:100,convnet-16:100,convnet:8]

The loop is as tutorials write it: a batch of one point, `torch.autograd.grad`, cosines tensor by tensor. On
one core everybody has one thread. On two cores the loop has both for each point, and batches go through the
engine, as in a search: half of the images to each of two workers. All see the same network, policy, images
and noise, and take turns. The number of images stands behind each network. They are CIFAR-10's where
GLASSHOUSE_DATA holds them, else the embedded digits, enlarged; the network is briefly trained. The section
in docs/benchmarks.md is rewritten.
"""

import argparse
import time
from collections.abc import Callable
from copy import deepcopy
from functools import partial

import numpy as np
import torch
import torch.nn.functional as F
from inversion import make_task
from page import fill
from torch import Tensor, nn

from glasshouse.data.images import Images
from glasshouse.defences.policies.policy import Policy, parse_policy
from glasshouse.defences.policies.privacy_score import POINTS, Precision, image_scores
from glasshouse.learning.cpu import laid_out
from glasshouse.learning.engine import Engine
from glasshouse.learning.fit import fit
from glasshouse.learning.layout import read_vector
from glasshouse.learning.recipe import Recipe
from glasshouse.learning.seeds import torch_rng
from glasshouse.models import build

TRAINING = Recipe(epochs=1, batch_size=64, lr=0.05, momentum=0.9)
TRAINED_ON = 320
POLICY = parse_policy("3-1-7")

TURNS = 2

Score = Callable[[nn.Module, Images], np.ndarray]


def plain_loop(model: nn.Module, images: Images) -> np.ndarray:
    """A point at a time."""
    return np.array([_plain_score(model, images, place, POLICY) for place in range(len(images))])


def _plain_score(model: nn.Module, images: Images, place: int, policy: Policy) -> float:
    image, label = images.x[place : place + 1], images.y[place : place + 1]
    noise = torch.rand(image.shape, generator=torch_rng(0, "noise", place))
    goal = policy.apply(image, torch_rng(0, "transform", place))
    parameters = list(model.parameters())

    def gradient(x: Tensor) -> tuple[Tensor, ...]:
        return torch.autograd.grad(F.cross_entropy(model(x), label), parameters)

    sought = gradient(goal)
    similar = []
    for point in range(POINTS):
        share = point / (POINTS - 1)
        parts = gradient((1 - share) * noise + share * goal)
        cosines = [F.cosine_similarity(p.flatten(), q.flatten(), 0) for p, q in zip(parts, sought)]
        similar.append(float(torch.stack(cosines).mean()))
    return float(np.trapezoid(similar, dx=1 / (POINTS - 1)))


def batched(model: nn.Module, images: Images, precision: Precision = "float32", first: int = 0) -> np.ndarray:
    """All points at once."""
    return image_scores(model, images, POLICY.apply, precision=precision, first=first)


def by_workers(engine: Engine, precision: Precision) -> Score:
    """All points at once, each half of the images by a worker."""

    def score(model: nn.Module, images: Images) -> np.ndarray:
        half = -(-len(images) // 2)
        jobs = [
            (model, images[start : start + half], precision, start) for start in range(0, len(images), half)
        ]
        return np.concatenate(list(engine.map(_job, jobs)))

    return score


def _job(job: tuple[nn.Module, Images, Precision, int]) -> np.ndarray:
    return batched(*job)


def make_network(name: str, training: Images) -> nn.Module:
    torch.manual_seed(0)
    network = build(name, training.shape, training.classes)
    fit(network, read_vector(network), training[:TRAINED_ON], TRAINING, seed=0)
    return network.eval()


def compare(network: nn.Module, images: Images, cores: int, contestants: dict[str, Score]) -> list[str]:
    """A row of the table for each contestant; the loop comes first."""
    faster = laid_out(deepcopy(network)).eval()
    seconds: dict[str, list[float]] = {name: [] for name in contestants}
    scores: dict[str, np.ndarray] = {}
    for turn in range(TURNS + 1):
        for name, score in contestants.items():
            torch.set_num_threads(cores if score is plain_loop else 1)
            given = images[:2] if turn == 0 else images  # the first turn warms up
            began = time.perf_counter()
            scores[name] = score(network if score is plain_loop else faster, given)
            if turn:
                seconds[name].append((time.perf_counter() - began) / len(images))
    expected, slow = scores["plain loop"], min(seconds["plain loop"])
    return [
        f"{len(images)} | {cores} | {name} | {1000 * best:.0f} | {slow / best:.1f}x | "
        f"{scores[name].mean():.4f} | {abs(scores[name] - expected).max():.4f} |"
        for name, best in ((name, min(times)) for name, times in seconds.items())
    ]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--networks", default="lenet:100,convnet-16:100,convnet:8")
    options = parser.parse_args()
    data, training, scored = make_task()
    rows = [
        f"**S_pri**: {data}, policy {POLICY}, {POINTS} points an image; the faster of {TURNS} turns.",
        "",
        "| network | images | cores | by | ms an image | faster | mean S_pri | largest difference |",
        "| --- | --- | --- | --- | --- | --- | --- | --- |",
    ]
    with Engine(2) as engine:
        one = {
            "plain loop": plain_loop,
            "batched": batched,
            "batched, bfloat16": partial(batched, precision="bfloat16"),
        }
        two = {
            "plain loop": plain_loop,
            "batched, two workers": by_workers(engine, "float32"),
            "batched, bfloat16, two workers": by_workers(engine, "bfloat16"),
        }
        for name, count in (each.split(":") for each in options.networks.split(",")):
            network = make_network(name, training)
            for cores, contestants in ((1, one), (2, two)):
                compared = compare(network, scored[: int(count)], cores, contestants)
                print(*compared, sep="\n", flush=True)
                rows += [f"| `{name}` | {row}" for row in compared]
    fill("policy-scores", "\n".join(rows))


if __name__ == "__main__":
    main()
