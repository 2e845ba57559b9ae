"""Times the training of shadow models through the engine against a serial loop with two threads.

Both train the same network on the same sets with the same numbers and ask each model about all images, in
processes of their own that take turns. The table in docs/benchmarks.md is rewritten.
"""

import argparse
import json
import os
import statistics
import subprocess
import sys
import time

import numpy as np
import torch
import torch.nn.functional as F
from page import fill
from processes import memory

from glasshouse.data.images import Images
from glasshouse.federation.shadows import ShadowSet, Training, shadow_sets, train_shadows
from glasshouse.learning.engine import Engine
from glasshouse.learning.layout import read_vector
from glasshouse.learning.recipe import Recipe
from glasshouse.models import build

WORKERS, THREADS, MODELS = 2, 2, 8
IMAGES, TRAINED = 4000, 2000
RECIPE = Recipe(epochs=5, batch_size=32, lr=0.05)
NETWORKS = {"lenet": "LeNet"}


def make_task(count: int) -> tuple[Images, list[ShadowSet]]:
    """Random images of CIFAR-10's shape, and the sets of `count` shadow models."""
    rng = np.random.default_rng(0)
    x = torch.from_numpy(rng.random((IMAGES, 3, 32, 32), dtype=np.float32))
    pool = Images(x, torch.from_numpy(rng.integers(0, 10, IMAGES)), 10)
    return pool, shadow_sets(np.arange(IMAGES), TRAINED, count, rng)


def through_engine(network: str, count: int) -> float:
    """Seconds that the engine takes, its workers being there already."""
    pool, sets = make_task(count)
    model = build(network, pool.shape, pool.classes)
    start = read_vector(model)
    training = Training(recipe=RECIPE)
    with Engine(WORKERS) as engine:
        train_shadows(model, lambda _: start, Training(recipe=Recipe()), pool, sets[:WORKERS], engine=engine)
        began = time.perf_counter()
        train_shadows(model, lambda _: start, training, pool, sets, engine=engine)
        return time.perf_counter() - began


def serial_loop(network: str, count: int) -> float:
    """Seconds that a loop takes, written as PyTorch tutorials write it."""
    torch.set_num_threads(THREADS)
    pool, sets = make_task(count)
    model = build(network, pool.shape, pool.classes)
    first = {name: value.clone() for name, value in model.state_dict().items()}
    _train(model, pool, sets[0])
    began = time.perf_counter()
    for own in sets:
        model.load_state_dict(first)
        _train(model, pool, own)
        model.eval()
        with torch.inference_mode():
            torch.cat([model(chunk) for chunk in pool.x.split(500)])
    return time.perf_counter() - began


def _train(model: torch.nn.Module, pool: Images, own: ShadowSet) -> None:
    x, y = pool.x[own.train], pool.y[own.train]
    optimiser = torch.optim.SGD(model.parameters(), lr=RECIPE.lr)
    model.train()
    for _ in range(RECIPE.epochs):
        for batch in torch.randperm(len(x)).split(RECIPE.batch_size):
            optimiser.zero_grad()
            F.cross_entropy(model(x[batch]), y[batch]).backward()
            optimiser.step()


CONTESTANTS = {"engine": through_engine, "loop": serial_loop}


def take_turn(contestant: str, network: str, count: int) -> tuple[float, int]:
    """Seconds and peak memory of a contestant in processes of its own."""
    command = [
        sys.executable,
        __file__,
        "--contestant",
        contestant,
        "--network",
        network,
        f"--models={count}",
    ]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
    peak = 0
    while process.poll() is None:
        peak = max(peak, memory(process.pid))
        time.sleep(0.5)
    assert process.stdout is not None
    if process.returncode:
        raise SystemExit(f"{' '.join(command)} failed")
    return float(json.loads(process.stdout.read())), peak


def compare(repetitions: int) -> str:
    """A Markdown table of both contestants for each network."""
    lines = [
        f"**{MODELS} shadow models**, each on {TRAINED:,} of {IMAGES:,} images of CIFAR-10's shape, "
        f"{RECIPE.epochs} epochs of batches of {RECIPE.batch_size}; "
        f"medians of {repetitions} turns on {os.cpu_count()} cores.",
        "",
        f"| network | engine, {WORKERS} workers | serial loop, {THREADS} threads | faster by |",
        "|---|---|---|---|",
    ]
    for network, shown in NETWORKS.items():
        seconds: dict[str, list[float]] = {name: [] for name in CONTESTANTS}
        for _ in range(repetitions):
            for name, taken in seconds.items():
                taken.append(take_turn(name, network, MODELS)[0])
                print(f"{network}, {name}: {taken[-1]:.2f} s", file=sys.stderr, flush=True)
        ours, theirs = (statistics.median(taken) for taken in seconds.values())
        lines.append(f"| {shown} | {ours:.2f} s | {theirs:.2f} s | {theirs / ours:.2f}x |")
    lines += ["", "| shadow models | peak memory |", "|---|---|"]
    for count in (MODELS // 2, MODELS, 2 * MODELS):
        lines.append(f"| {count} | {take_turn('engine', 'lenet', count)[1] / 2**20:,.0f} MiB |")
    return "\n".join(lines)


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--repetitions", type=int, default=5, help="how often each contestant has its turn")
    parser.add_argument("--contestant", choices=CONTESTANTS, help="only this one, once, in this process")
    parser.add_argument("--network", choices=NETWORKS, default="lenet")
    parser.add_argument("--models", type=int, default=MODELS)
    given = parser.parse_args()
    if given.contestant:
        print(json.dumps(CONTESTANTS[given.contestant](given.network, given.models)))
        return
    measured = compare(given.repetitions)
    fill("shadows", measured)


if __name__ == "__main__":
    main()
