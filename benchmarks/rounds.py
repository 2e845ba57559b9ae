"""Times one steady federated round of Glasshouse against a plain PyTorch loop and Flower's simulation.

Every contestant trains the same network on the same data with the same numbers, in processes of its own. They
take turns, several times over, because machines have moods; the table in docs/benchmarks.md is rewritten.
"""

import argparse
import dataclasses
import json
import os
import platform
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from importlib.metadata import version
from pathlib import Path

import numpy as np
import torch
from page import fill
from processes import memory
from task import Shape, write_task
from torch import nn

from glasshouse.data.sources import load
from glasshouse.errors import BadInput
from glasshouse.models import build

HERE = Path(__file__).parent
ROOT = HERE.parent
FLOWER = ROOT / ".venv-flower"
WORKERS = 2

SMALL = Shape(
    name="many small clients",
    data="cifar10",
    network="pfl-cnn",
    clients=1000,
    samples=50,
    participants=50,
    epochs=1,
    batch_size=10,
    lr=0.1,
)
LONG = Shape(
    name="few long clients",
    data="fashion-mnist",
    network="lenet",
    clients=100,
    samples=600,
    participants=10,
    epochs=10,
    batch_size=60,
    lr=0.05,
)
PIXELS = {"cifar10": (3, 32, 32), "fashion-mnist": (1, 28, 28)}


def pfl_cnn() -> nn.Module:
    """The CNN of pfl-research's CIFAR-10 benchmark (Granqvist et al. 2024): 1,626,442 parameters."""
    return nn.Sequential(
        nn.Conv2d(3, 32, 3),
        nn.ReLU(),
        nn.Conv2d(32, 64, 3),
        nn.ReLU(),
        nn.MaxPool2d(2),
        nn.Dropout(0.25),
        nn.Flatten(),
        nn.Linear(64 * 14 * 14, 128),
        nn.ReLU(),
        nn.Dropout(0.5),
        nn.Linear(128, 10),
    )


NETWORKS: Mapping[str, Callable[[], nn.Module]] = {
    "pfl-cnn": pfl_cnn,
    "lenet": lambda: build("lenet", PIXELS["fashion-mnist"], 10),
}

OURS = (sys.executable, str(HERE / "contestants.py"))
GLASSHOUSE, FLOWERS = "Glasshouse, 2 workers", "Flower's simulation, 2 workers"
CONTESTANTS = {
    GLASSHOUSE: (*OURS, "glasshouse", f"--parallel={WORKERS}"),
    "plain loop, 1 thread": (*OURS, "plain", "--parallel=1"),
    "plain loop, 2 threads": (*OURS, "plain", "--parallel=2"),
    FLOWERS: (str(FLOWER / "bin" / "python"), str(HERE / "flower_round.py"), f"--parallel={WORKERS}"),
}


@dataclass
class Score:
    """What a contestant's rounds have taken so far, and the most memory its processes held at once."""

    seconds: list[float] = field(default_factory=list)
    cpu: list[float] = field(default_factory=list)
    peak: int = 0


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--repetitions", type=int, default=4, help="how often each contestant has its turn")
    parser.add_argument("--rounds", type=int, default=3, help="timed rounds in a turn, after one to warm up")
    given = parser.parse_args()
    install_flower()
    parts = [conditions(given.repetitions * given.rounds)]
    for shape in (SMALL, LONG):
        say(f"{shape.name}: {given.repetitions} turns each")
        parts.append(table(shape, compete(shape, given.repetitions, given.rounds)))
    say("memory against the number of clients")
    parts.append(growth())
    measured = "\n\n".join(parts)
    fill("measured", measured)


def install_flower() -> None:
    """Make the environment of Flower, once: its dependencies and ours need not agree."""
    done = FLOWER / ".installed"
    if done.exists():
        return
    say("installing Flower into an environment of its own")
    subprocess.run([sys.executable, "-m", "venv", FLOWER], check=True)
    pip = (FLOWER / "bin" / "python", "-m", "pip", "install", "--quiet", "--disable-pip-version-check")
    for package in ("torch", "flwr[simulation]"):
        subprocess.run((*pip, "-c", ROOT / "constraints.txt", package), check=True)
    done.touch()


def compete(shape: Shape, repetitions: int, rounds: int) -> dict[str, Score]:
    """Let the contestants take turns at `shape`."""
    scores = {name: Score() for name in CONTESTANTS}
    with tempfile.TemporaryDirectory(prefix="glasshouse-bench-") as folder:
        prepare(Path(folder), shape)
        for _ in range(repetitions):
            for name, command in CONTESTANTS.items():
                take_turn(scores[name], command, Path(folder), rounds)
                say(f"  {name}: {scores[name].seconds[-1]:.2f} s")
    return scores


def prepare(folder: Path, shape: Shape) -> None:
    """Lay the task down: the real images where they are at hand, else random ones of their shape."""
    torch.manual_seed(0)
    count = shape.clients * shape.samples
    try:
        if "GLASSHOUSE_DATA" not in os.environ:
            raise BadInput("no folder of data sets")
        images = load(shape.data).train[:count]
        x, y = images.x.numpy(), images.y.numpy()
    except BadInput:
        rng = np.random.default_rng(0)
        x = rng.random((count, *PIXELS[shape.data]), dtype=np.float32)
        y = rng.integers(0, 10, count)
    write_task(folder, shape, x, y, NETWORKS[shape.network]())


def take_turn(score: Score, command: tuple[str, ...], task: Path, rounds: int) -> None:
    """Run a contestant in processes of its own and add what it prints to `score`."""
    with tempfile.TemporaryFile("w+") as errors:
        arguments = [*command, str(task), f"--rounds={rounds}"]
        contestant = subprocess.Popen(arguments, stdout=subprocess.PIPE, stderr=errors, text=True)
        while contestant.poll() is None:
            score.peak = max(score.peak, memory(contestant.pid))
            time.sleep(1)
        assert contestant.stdout is not None
        printed = contestant.stdout.read()
        if contestant.returncode:
            errors.seek(0)
            raise SystemExit(f"{' '.join(arguments)} failed:\n{errors.read()}")
    for seconds, cpu in json.loads(printed.splitlines()[-1]):
        score.seconds.append(seconds)
        score.cpu.append(cpu)


def table(shape: Shape, scores: Mapping[str, Score]) -> str:
    """A Markdown table of a shape's scores."""
    ours = statistics.median(scores[GLASSHOUSE].seconds)
    lines = [
        f"**{shape.name.capitalize()}**: {shape.data} shapes, {shape.clients} clients of {shape.samples} "
        f"images, {shape.participants} in a round, {shape.epochs} epoch{'s' * (shape.epochs > 1)} "
        f"of batches of {shape.batch_size}, {shape.network}.",
        "",
        "| contestant | seconds a round | from - to | CPU seconds | peak memory | Glasshouse is faster by |",
        "|---|---|---|---|---|---|",
    ]
    for name, score in scores.items():
        median = statistics.median(score.seconds)
        faster = "" if name == GLASSHOUSE else f"{median / ours:.2f}x"
        lines.append(
            f"| {name} | {median:.2f} | {min(score.seconds):.2f} - {max(score.seconds):.2f} "
            f"| {statistics.median(score.cpu):.2f} | {score.peak / 2**20:,.0f} MiB | {faster} |"
        )
    return "\n".join(lines)


def growth() -> str:
    """A Markdown table of peak memory when the same images lie with more and more clients."""
    images = SMALL.clients * SMALL.samples
    data = images * int(np.prod(PIXELS[SMALL.data])) * 4
    lines = [
        f"**Memory against the number of clients**: the same {images:,} images ({data / 2**20:,.0f} MiB) "
        "divided among more clients, 5% of them in a round.",
        "",
        f"| clients | {GLASSHOUSE} | {FLOWERS} |",
        "|---|---|---|",
    ]
    for clients in (100, 1000, 5000):
        shape = dataclasses.replace(
            SMALL, clients=clients, samples=images // clients, participants=clients // 20
        )
        peaks = []
        with tempfile.TemporaryDirectory(prefix="glasshouse-bench-") as folder:
            prepare(Path(folder), shape)
            for name in (GLASSHOUSE, FLOWERS):
                take_turn(score := Score(), CONTESTANTS[name], Path(folder), rounds=2)
                peaks.append(f"{score.peak / 2**20:,.0f} MiB")
        lines.append(f"| {clients:,} | {' | '.join(peaks)} |")
    return "\n".join(lines)


def conditions(rounds: int) -> str:
    """What was measured with, in a sentence."""
    ask = "from importlib.metadata import version; print(version('flwr'), version('ray'))"
    flower = subprocess.run(
        [FLOWER / "bin" / "python", "-c", ask], capture_output=True, text=True, check=True
    )
    flwr, ray = flower.stdout.split()
    return (
        f"Measured with Python {platform.python_version()}, torch {torch.__version__}, "
        f"Glasshouse {version('glasshouse')}, Flower {flwr} and Ray {ray}, on {os.cpu_count()} cores; "
        f"medians of {rounds} rounds."
    )


def say(line: str) -> None:
    print(line, file=sys.stderr, flush=True)


if __name__ == "__main__":
    main()
