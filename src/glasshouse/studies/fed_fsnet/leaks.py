"""What each federation gives away: the same attacks on all of them, each with its own adversary's access."""

import time
from collections.abc import Iterator
from typing import Any

import numpy as np

from glasshouse.access import Access
from glasshouse.attacks import ATTACKS
from glasshouse.attacks.attack import Attack, Knowledge
from glasshouse.auditing.scoring import score
from glasshouse.auditing.truth import ABOUT_RECORDS, Truth
from glasshouse.errors import CannotRun
from glasshouse.federation.federation import Diverged
from glasshouse.findings import Finding
from glasshouse.learning.seeds import derive, numpy_rng, torch_rng
from glasshouse.studies.fed_fsnet.cells import shared
from glasshouse.studies.fed_fsnet.rows import Row
from glasshouse.studies.fed_fsnet.scales import Sizes, Task
from glasshouse.studies.fed_fsnet.training import Trained, train
from glasshouse.studies.study import Workplace

EPS = {1: 0.1, 3: 0.02}
"""How far PGD may move a pixel of grey and of colour images."""
SPECS = ("loss-threshold", "label-counts", "reported-labels", "mimic-distance", "mimic-neighbours")


def leak_cell(task: Task, fraction: float, row: Row, place: Workplace) -> list[Finding]:
    """Every attack on one federation, which is trained first where it is not yet there."""
    common = shared(task, fraction, row)
    try:
        trained = train(task, fraction, row, place, watched=True)
    except Diverged as error:
        reason = (*common["assumes"], f"not estimable: {error}")
        return [
            Finding(**common | {"assumes": reason}, family="utility", metric="not-applicable", value=None)
        ]
    return [
        finding
        for spec in (*SPECS, pgd(trained.split.pool.shape[0]))
        for kind in ATTACKS.make(spec).needs
        for finding in _attacked(spec, kind, trained, task.sizes, common, place.seed)
    ]


def pgd(channels: int) -> str:
    """PGD as the findings call it."""
    return f"pgd(eps={EPS[channels]}, steps=20)"


def _attacked(
    spec: str, kind: type[Access], trained: Trained, sizes: Sizes, common: dict[str, Any], seed: int
) -> Iterator[Finding]:
    attack: Attack = ATTACKS.make(spec)
    common = common | {"attack": spec, "adversary": kind.adversary, "family": attack.family}
    own_seed = derive(seed, "attack", spec, kind.adversary)
    truth = _truth(attack, trained, sizes, seed, own_seed)
    knowledge = Knowledge(
        candidates=truth.candidates if "candidates" in attack.knows else None,
        auxiliary=trained.split.images("auxiliary") if "auxiliary" in attack.knows else None,
    )
    began = time.process_time()
    try:
        access = trained.grantor.grant(kind)
        scores = score(attack.run(access, knowledge, torch_rng(own_seed)), truth)
    except CannotRun as reason:
        said = (*common["assumes"], str(reason))
        yield Finding(**common | {"assumes": said}, metric="not-applicable", value=None)
        return
    seconds = time.process_time() - began
    for each in scores:
        said = (*common["assumes"], *knowledge.described())
        said += (each.estimate.note,) if each.estimate.note else ()
        entries = common | each.estimate.entries() | {"assumes": said, "seconds": seconds}
        yield Finding(**entries, metric=each.metric, chance=each.chance)


def _truth(attack: Attack, trained: Trained, sizes: Sizes, seed: int, own_seed: int) -> Truth:
    """Members and non-members for attacks on them, else some test images."""
    held = trained.split
    if attack.family in ABOUT_RECORDS:
        positions, holder = _candidates(trained, seed)
    else:
        positions = numpy_rng(seed, "attacked").permutation(held.test)[: sizes.attacked]
        holder = np.full(len(positions), -1)
    counts = np.stack([held.client(k).label_counts().numpy() for k in range(len(held.clients))])
    return Truth(
        held.pool[positions],
        holder,
        holder >= 0,
        counts,
        trained.grantor.model,
        torch_rng(own_seed, "blind guess"),
        split=held,
    )


def _candidates(trained: Trained, seed: int) -> tuple[np.ndarray, np.ndarray]:
    """Images of devices that took part and non-members, as many of each class, in one random order.

    With each comes the number of the device that holds it, or -1. Were classes unequal among them, a model
    that only knows which classes its devices hold would seem to know its members.
    """
    held, rng = trained.split, numpy_rng(seed, "suspects")
    took_part = sorted({client for row in trained.history.rounds for client in row.clients})
    inside = np.concatenate([held.clients[client] for client in took_part])
    owner = np.concatenate([np.full(len(held.clients[client]), client) for client in took_part])
    y = held.pool.y.numpy()
    positions, holders = [], []
    for label in range(held.pool.classes):
        members = rng.permutation(np.flatnonzero(y[inside] == label))
        others = rng.permutation(held.nonmembers[y[held.nonmembers] == label])
        each = min(len(members), len(others))
        positions += [inside[members[:each]], others[:each]]
        holders += [owner[members[:each]], np.full(each, -1)]
    order = rng.permutation(sum(map(len, positions)))
    return np.concatenate(positions)[order], np.concatenate(holders)[order]
