"""Times S_pri of one policy: all points of an image, or of several, in one batch, and in a plain loop.

    python benchmarks/policy_scores.py [--images 4] [--models convnet,lenet] [--threads 1,2]

The loop is as tutorials write it: a batch of one point, `torch.autograd.grad`, cosines tensor by tensor. All
see the same network, policy, images and noise, and take turns. CPU seconds tell most where others are on the
machine. The images are CIFAR-10's where GLASSHOUSE_DATA holds them, else the embedded digits, enlarged;
the network is briefly trained. The section in docs/benchmarks.md is rewritten.
"""

import argparse
import time
from collections.abc import Callable
from copy import deepcopy

import numpy as np
import torch
import torch.nn.functional as F
from inversion import make_task
from page import fill
from torch import Tensor, nn

from glasshouse.data.images import Images
from glasshouse.defences.policies.policy import Policy, parse_policy
from glasshouse.defences.policies.privacy_score import POINTS, image_scores
from glasshouse.learning.cpu import laid_out
from glasshouse.learning.fit import fit
from glasshouse.learning.layout import read_vector
from glasshouse.learning.recipe import Recipe
from glasshouse.learning.seeds import torch_rng
from glasshouse.models import build

TRAINING = Recipe(epochs=1, batch_size=64, lr=0.05, momentum=0.9)
TRAINED_ON = 320
POLICY = parse_policy("3-1-7")

Contestant = Callable[[nn.Module, Images], np.ndarray]


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


def batched(model: nn.Module, images: Images) -> np.ndarray:
    """All points at once."""
    return image_scores(model, images, POLICY.apply)


def rounded(model: nn.Module, images: Images) -> np.ndarray:
    """All points at once, in bfloat16."""
    return image_scores(model, images, POLICY.apply, precision="bfloat16")


CONTESTANTS: dict[str, Contestant] = {
    "plain loop": plain_loop,
    "batched, float32": batched,
    "batched, bfloat16": rounded,
}


def make_network(name: str, training: Images) -> nn.Module:
    torch.manual_seed(0)
    network = build(name, training.shape, training.classes)
    fit(network, read_vector(network), training[:TRAINED_ON], TRAINING, seed=0)
    return network.eval()


def compare(network: nn.Module, images: Images, threads: int) -> list[str]:
    """A row of the table for each contestant."""
    torch.set_num_threads(threads)
    faster = laid_out(deepcopy(network)).eval()
    wall: dict[str, list[float]] = {name: [] for name in CONTESTANTS}
    cpu: dict[str, list[float]] = {name: [] for name in CONTESTANTS}
    scores: dict[str, np.ndarray] = {}
    for turn in range(3):
        for name, score in CONTESTANTS.items():
            given = images[:1] if turn == 0 else images  # the first turn warms up
            began, spent = time.perf_counter(), time.process_time()
            scores[name] = score(network if score is plain_loop else faster, given)
            if turn:
                wall[name].append((time.perf_counter() - began) / len(images))
                cpu[name].append((time.process_time() - spent) / len(images))
    return [
        f"| {threads} | {name} | {_beside(wall, name)} | {_beside(cpu, name)} | "
        f"{scores[name].mean():.4f} | {abs(scores[name] - scores['plain loop']).max():.4f} |"
        for name in CONTESTANTS
    ]


def _beside(seconds: dict[str, list[float]], name: str) -> str:
    """The milliseconds of the faster turn, and by how much that beats the loop's."""
    best = min(seconds[name])
    return f"{1000 * best:.0f} | {min(seconds['plain loop']) / best:.1f}x"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--images", type=int, default=4)
    parser.add_argument("--models", default="convnet,lenet")
    parser.add_argument("--threads", default="1,2")
    options = parser.parse_args()
    torch.set_num_threads(1)
    data, training, scored = make_task()
    rows = [
        f"{data}, policy {POLICY}, {options.images} images, {POINTS} points each; the faster of two turns.",
        "",
        "| network | threads | S_pri | ms an image | faster | CPU ms | by CPU | mean | largest difference |",
        "| --- | --- | --- | --- | --- | --- | --- | --- | --- |",
    ]
    for name in options.models.split(","):
        network = make_network(name, training)
        for threads in map(int, options.threads.split(",")):
            compared = compare(network, scored[: options.images], threads)
            print(*compared, sep="\n", flush=True)
            rows += [f"| `{name}` {row}" for row in compared]
    fill("policy-scores", "\n".join(rows))


if __name__ == "__main__":
    main()
