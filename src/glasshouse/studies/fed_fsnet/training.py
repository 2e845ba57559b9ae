"""From a row to a trained federation: all that share a seed share images, first weights and chances."""

import time
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path

import numpy as np
import torch
from torch import nn

from glasshouse.auditing.grants import Grantor
from glasshouse.data.images import Images
from glasshouse.data.partitions import partition
from glasshouse.data.sources import load
from glasshouse.data.split import Split
from glasshouse.data.stratify import stratified
from glasshouse.federation.federation import Federation, Plan
from glasshouse.federation.history import History, Record
from glasshouse.federation.strategies import STRATEGIES
from glasshouse.learning.layout import read_vector
from glasshouse.learning.seeds import derive, numpy_rng
from glasshouse.models.loading import load_model
from glasshouse.store import read_json, write_json
from glasshouse.studies.fed_fsnet.rows import Row
from glasshouse.studies.fed_fsnet.scales import Sizes, Task
from glasshouse.studies.study import Workplace

ENDS = 2
"""So many of the first rounds, and of the last, are kept as the server saw them."""


@dataclass(frozen=True, eq=False)
class Parts:
    """Who holds what of one data set and seed, before devices get their images: positions in `pool`."""

    pool: Images
    members: np.ndarray
    nonmembers: np.ndarray
    held_out: np.ndarray
    test: np.ndarray


@dataclass(frozen=True, eq=False)
class Trained:
    """A finished federation, and core-seconds a round, null where nobody looked at the clock."""

    split: Split
    history: History
    grantor: Grantor
    seconds: float | None


@lru_cache(maxsize=1)
def parts(data: str, sizes: Sizes, seed: int) -> Parts:
    """The images of one data set and seed; without official test images all parts are drawn from one pool."""
    whole = load(data)
    y = whole.train.y.numpy()
    rng = numpy_rng(seed, "fed-fsnet", data)
    if whole.test is None:
        held_out, nonmembers, test = stratified(y, [sizes.held_out, sizes.nonmembers, sizes.test], rng)
        taken = np.concatenate([held_out, nonmembers, test])
    else:
        (held_out,) = stratified(y, [sizes.held_out], rng)
        official = stratified(whole.test.y.numpy(), [sizes.nonmembers, sizes.test], rng)
        nonmembers, test = (len(y) + positions for positions in official)
        taken = held_out
    return Parts(whole.pool, np.setdiff1d(np.arange(len(y)), taken), nonmembers, held_out, test)


def divided(task: Task, row: Row, seed: int) -> Split:
    """The members among the devices, as the row's partition says."""
    own = parts(task.data, task.sizes, seed)
    y = own.pool.y.numpy()[own.members]
    hands = partition(row.partition, y, task.sizes.devices, derive(seed, "partition"))
    clients = tuple(own.members[positions] for positions in hands)
    return Split(own.pool, clients, own.nonmembers, own.held_out, own.test)


def started(name: str, images: Images, seed: int) -> nn.Module:
    """The network with its first weights."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(derive(seed, "weights"))
        return load_model(name, images.shape, images.classes)


def train(task: Task, fraction: float, row: Row, place: Workplace, *, watched: bool) -> Trained:
    """The federation of a row, kept where all cells find it: what was trained is not trained again.

    Where it is `watched`, the server's view of the first and the last rounds is kept for the attacks.
    """
    held = divided(task, row, place.seed)
    model = started(task.model, held.pool, place.seed)
    federation = Federation(
        model,
        held,
        task.recipe,
        engine=place.engine,
        strategy=STRATEGIES.make(task.spec(row)),
        local_test=task.sizes.local_test,
        seed=derive(place.seed, "federation"),
    )
    kept = place.shared / "federations" / task.head(fraction) / row.name / f"seed-{place.seed:04d}"
    observe = _ends(task.rounds) if watched else ()
    plan = Plan(rounds=task.rounds, fraction=fraction, observe=observe)
    record = Record(kept)
    known = record.load()
    began, before = time.process_time(), len(known.rounds) if known else 0
    history = federation.run(read_vector(model), plan, record=record, progress=place.progress, label=row.name)
    trained = len(history.rounds) - before
    seconds = _clocked(kept / "seconds.json", time.process_time() - began, trained)
    seen = [record.observed(number) for number in observe]
    return Trained(held, history, Grantor(model, federation, history, seen), seconds)


def _clocked(file: Path, seconds: float, rounds: int) -> float | None:
    """Core-seconds a round: of the rounds just trained, or else of those that were trained last."""
    if rounds:
        write_json(file, seconds / rounds)
    elif not file.exists():
        return None
    own: float = read_json(file)
    return own


def _ends(rounds: int) -> tuple[int, ...]:
    return tuple(number for number in range(rounds) if number < ENDS or number >= rounds - ENDS)
