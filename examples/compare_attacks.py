"""Compare an attack and a defence of your own with published ones: same records, three seeds, paired.

An attack or a defence is a class, and `module:Class` names it wherever attacks and defences are named. From
Python, run this file in its folder; it takes about two minutes. From the command line, run
`glasshouse audit my.toml --seeds 3` there with, in my.toml,

    [audit]
    attacks = ["loss-threshold", "gap", "rmia", "compare_attacks:Neighbourhood(copies=20)"]
    defences = ["label-smoothing", "mix-up", "weight-decay", "compare_attacks:NoisyImages(std=0.2)"]

All attacks meet the same models with the same access, and the auditor scores all of them on the same records.
So two of them are compared record by record, seed by seed, which leaves out the luck that they share.
"""

from dataclasses import dataclass, replace

import numpy as np
import torch
from torch import Tensor

from glasshouse.access import QueryAccess
from glasshouse.attacks.attack import Attack, Knowledge
from glasshouse.attacks.membership.signals import asked, losses
from glasshouse.data.images import Images
from glasshouse.defences.defence import Defence
from glasshouse.evidence.membership import MembershipScores


@dataclass(frozen=True, kw_only=True)
class Neighbourhood(Attack):
    """Calls a record a member if the loss of noisy copies of it is lower than is usual.

    The idea: a model is sure of what it has learned by heart, and of what lies near it.
    """

    copies: int = 10
    std: float = 0.1
    family = "membership"
    needs = (QueryAccess,)
    knows = ("candidates", "auxiliary")

    def run(self, access: QueryAccess, knowledge: Knowledge, rng: torch.Generator) -> MembershipScores:
        nearby = self.losses_nearby(access, knowledge.candidates, rng)
        usual = np.median(self.losses_nearby(access, knowledge.auxiliary, rng))
        return MembershipScores(-nearby, nearby < usual)

    def losses_nearby(self, access: QueryAccess, images: Images, rng: torch.Generator) -> np.ndarray:
        """The mean loss of noisy copies of each image, shape (N,)."""
        total = np.zeros(len(images))
        for _ in range(self.copies):
            noise = self.std * torch.randn(images.x.shape, generator=rng)
            copies = replace(images, x=(images.x + noise).clamp(0, 1))
            total += losses(asked(access, copies), copies.y)
        return total / self.copies


@dataclass(frozen=True, kw_only=True)
class NoisyImages(Defence):
    """Clients train on images with fresh noise in every batch, so that none is learned by heart."""

    std: float = 0.3

    def on_batch(self, x: Tensor, rng: torch.Generator) -> Tensor:
        return (x + self.std * torch.randn(x.shape, generator=rng)).clamp(0, 1)


MINE, MY_DEFENCE = "compare_attacks:Neighbourhood", "compare_attacks:NoisyImages"
PUBLISHED, DEFENCES = ("loss-threshold", "gap", "rmia"), ("label-smoothing", "mix-up", "weight-decay")

if __name__ == "__main__":
    from glasshouse import Setting, audit

    setting = Setting(
        data={"clients": 5, "members": 200, "nonmembers": 200},
        model={"name": "mlp"},
        training={"rounds": 30, "epochs": 5, "batch_size": 10, "lr": 0.1},
        audit={
            "attacks": (*PUBLISHED, MINE),
            "defences": (*DEFENCES, MY_DEFENCE),
            "shadow_training": "central",
            "adaptive": False,
            "central": False,
        },
    )
    results = audit(setting, seeds=3)
    for published in PUBLISHED:
        print(results.compare(published, MINE, metric="auc"))
    for defence in ("none", *DEFENCES):
        print(results.compare(defence, MY_DEFENCE, metric="auc"))
        print(results.compare(defence, MY_DEFENCE, metric="test-accuracy"))
    print(results.report)
