"""What the auditor knows and no attack is told."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
from torch import nn

from glasshouse.attacks.attack import Attack
from glasshouse.attacks.membership.batches import compose
from glasshouse.auditing.experiment import Experiment
from glasshouse.data.images import Images
from glasshouse.data.split import Split
from glasshouse.learning.seeds import numpy_rng, torch_rng

ABOUT_RECORDS = ("membership", "source", "disclosure")
"""The families whose candidates are members and non-members; those of the others are test images."""


@dataclass(frozen=True, eq=False)
class Truth:
    """The candidates, and what is true of them and of the clients.

    `holder` is the number of the client that holds each candidate, -1 for non-members, shape (N,). Where the
    questions are about batches, shape (G, B), `member` has shape (G,), else (N,). `client_counts` are the
    labels of each client, shape (clients, classes).
    """

    candidates: Images
    holder: np.ndarray
    member: np.ndarray
    client_counts: np.ndarray
    model: nn.Module
    rng: torch.Generator
    batches: np.ndarray | None = None
    by_user: bool = False
    split: Split | None = None

    def held_by(self, clients: Sequence[int]) -> Images:
        """A copy of all images that `clients` hold, one client's after the other's."""
        assert self.split is not None
        return self.split.pool[np.concatenate([self.split.clients[k] for k in clients])]


def establish(experiment: Experiment, attack: Attack, model: nn.Module, seed: int) -> Truth:
    """The truth about one attack on the final `model`."""
    held = experiment.split
    if attack.family in ABOUT_RECORDS:
        candidates, holder = experiment.candidates
        batches, member = _questions(attack, holder, experiment.setting.seed)
    else:
        candidates, holder = held.images("test"), np.full(len(held.test), -1)
        batches, member = None, holder >= 0
    counts = np.stack([held.client(k).label_counts().numpy() for k in range(len(held.clients))])
    rng = torch_rng(seed, "blind guess")
    return Truth(candidates, holder, member, counts, model, rng, batches, experiment.by_user, held)


def _questions(attack: Attack, holder: np.ndarray, seed: int) -> tuple[np.ndarray | None, np.ndarray]:
    """The batches that are asked about, if they are, and whether each record or batch was trained on."""
    if attack.query_unit == 1 or not len(holder):
        return None, holder >= 0
    rng = numpy_rng(seed, "questions", attack.query_unit)
    sides = np.flatnonzero(holder >= 0), np.flatnonzero(holder < 0)
    inside, outside = compose(*sides, attack.query_unit, attack.member_share, rng)
    order = rng.permutation(len(inside) + len(outside))
    return np.concatenate([inside, outside])[order], order < len(inside)
