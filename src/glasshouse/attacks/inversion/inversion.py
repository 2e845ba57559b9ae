"""What all attacks share that leave few samples in a gradient and then invert it."""

from typing import ClassVar

import torch
from torch import Tensor, nn

from glasshouse.access import BlindServerAccess, Protocol
from glasshouse.attacks.attack import Attack
from glasshouse.attacks.inversion.cosine import affordable_steps, invert
from glasshouse.options import check_number, check_whole


class Inversion(Attack):
    """Ends in an inversion of `steps`, null for as many as about a minute allows, from `restarts` starts.

    `tv` weighs the penalty on rough images.
    """

    name: ClassVar[str]
    family = "reconstruction"
    needs = (BlindServerAccess,)
    steps: int | None
    restarts: int
    tv: float

    def __post_init__(self) -> None:
        if self.steps is not None:
            check_whole(self.name, "steps", self.steps, 1)
        check_whole(self.name, "restarts", self.restarts, 1)
        check_number(self.name, "tv", self.tv, 0)

    def invert(
        self,
        protocol: Protocol,
        network: nn.Module,
        gradient: Tensor,
        labels: Tensor,
        known: Tensor,
        rng: torch.Generator,
    ) -> Tensor:
        """The images of `labels`, shape (n,), behind the `known` entries of a gradient of `network`."""
        return invert(
            network,
            protocol.layout,
            gradient,
            labels,
            protocol.shape,
            steps=self.steps or affordable_steps(protocol.layout, len(labels)),
            restarts=self.restarts,
            tv=self.tv,
            known=known,
            rng=rng,
        )
