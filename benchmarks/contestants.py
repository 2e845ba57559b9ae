"""Times steady rounds of the task in a folder, by a plain PyTorch loop or by Glasshouse; prints
(seconds, CPU seconds) of each as JSON."""

import argparse
import json
import os
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import numpy as np
import torch
from processes import cpu_seconds
from task import Task, read_task, train

Round = Callable[[int], None]


@contextmanager
def plain_loop(task: Task, threads: int) -> Iterator[Round]:
    """One client after the other in one process, with `threads` torch threads."""
    torch.set_num_threads(threads)
    network, shape = task.network, task.shape
    sent = {name: value.clone() for name, value in network.state_dict().items()}

    def play(number: int) -> None:
        chosen = np.random.default_rng(number).choice(shape.clients, shape.participants, replace=False)
        mean = {name: torch.zeros_like(value) for name, value in sent.items()}
        for client in chosen:
            network.load_state_dict(sent)
            train(network, *task.client(client), shape)
            for name, value in network.state_dict().items():
                mean[name] += value / shape.participants
        sent.update(mean)

    yield play


@contextmanager
def glasshouse(task: Task, workers: int) -> Iterator[Round]:
    """A federation of Glasshouse with `workers` worker processes."""
    from glasshouse.data.images import Images
    from glasshouse.data.split import Split
    from glasshouse.federation.federation import Federation
    from glasshouse.learning.engine import Engine
    from glasshouse.learning.layout import read_vector
    from glasshouse.learning.recipe import Recipe

    shape = task.shape
    positions = np.arange(shape.clients * shape.samples).reshape(shape.clients, shape.samples)
    nobody = np.arange(0)
    split = Split(Images(task.x, task.y, 10), tuple(positions), nobody, nobody, nobody)
    recipe = Recipe(epochs=shape.epochs, batch_size=shape.batch_size, lr=shape.lr)
    vector = read_vector(task.network)
    with Engine(workers) as engine:
        federation = Federation(task.network, split, recipe, engine=engine)

        def play(number: int) -> None:
            nonlocal vector
            rng = np.random.default_rng(number)
            chosen = sorted(int(k) for k in rng.choice(shape.clients, shape.participants, replace=False))
            vector = vector + federation.exchange(vector, chosen, number, keep_updates=False).delivery.mean

        yield play


CONTESTANTS = {"plain": plain_loop, "glasshouse": glasshouse}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("contestant", choices=CONTESTANTS)
    parser.add_argument("task", type=Path)
    parser.add_argument("--parallel", type=int, default=1, help="threads of the loop, workers of Glasshouse")
    parser.add_argument("--warm-up", type=int, default=1, help="rounds before those that count")
    parser.add_argument("--rounds", type=int, default=2)
    given = parser.parse_args()
    played = []
    with CONTESTANTS[given.contestant](read_task(given.task), given.parallel) as play:
        for number in range(given.warm_up + given.rounds):
            start, used = time.perf_counter(), cpu_seconds(os.getpid())
            play(number)
            played.append((time.perf_counter() - start, cpu_seconds(os.getpid()) - used))
    print(json.dumps(played[given.warm_up :]))


if __name__ == "__main__":
    main()
