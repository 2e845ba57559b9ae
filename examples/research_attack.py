"""Compare an attack of your own with a published one, on equal terms.

An attack is a class, and `module:Class` names it wherever attacks are named. From Python, run this file. From
the command line, run `glasshouse audit my.toml` in this folder with, in my.toml,

    [audit]
    attacks = ["loss-threshold", "research_attack:Neighbourhood(copies=20)"]

Both attacks meet the same model with the same access and knowledge, and the auditor scores both. Defences
(`audit.defences`) and strategies (`training.strategy`) of your own are named in the same way.
"""

from dataclasses import dataclass, replace

import numpy as np
import torch

from glasshouse.access import QueryAccess
from glasshouse.attacks.attack import Attack, Knowledge
from glasshouse.attacks.membership.signals import asked, losses
from glasshouse.data.images import Images
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


if __name__ == "__main__":
    from glasshouse import Setting, audit

    setting = Setting(
        data={"clients": 5, "members": 200, "nonmembers": 200},
        model={"name": "mlp"},
        training={"rounds": 30, "epochs": 5, "batch_size": 10, "lr": 0.1},
        audit={
            "attacks": ("loss-threshold", "research_attack:Neighbourhood"),
            "defences": ("clipping(norm=1.0)",),
            "central": False,
        },
    )
    for finding in audit(setting).findings:
        if finding.metric == "auc":
            numbers = f"AUC {finding.value:.3f}, 95% interval {finding.low:.3f} to {finding.high:.3f}"
            print(f"{finding.defence:18}  {finding.attack:29}  {numbers}, chance {finding.chance}")
