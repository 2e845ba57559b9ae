"""What attacks have in common that leave one sample, or one client, in a sum: the inversion they end in."""

from typing import ClassVar

import torch

from glasshouse.access import BlindServerAccess
from glasshouse.attacks.attack import Attack
from glasshouse.attacks.inversion.effort import affordable_steps
from glasshouse.attacks.inversion.published import InvertingGradients
from glasshouse.attacks.inversion.target import Target
from glasshouse.evidence.reconstruction import Rebuilt
from glasshouse.options import check_number, check_whole

SECONDS = 60.0
"""What an inversion may take where nobody says how many steps."""

HEAT = 1 / 8
"""The share of the steps after which only the best of several restarts goes on."""

PATIENCE = 1 / 10
"""The share of the steps without progress that counts as a plateau."""


class SinglingOut(Attack):
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

    def inverted(self, target: Target, clients: tuple[int, ...], rng: torch.Generator) -> Rebuilt:
        """The images that explain `target`, all of them among those of `clients`."""
        steps = self.steps or affordable_steps(target.network, target.shape, target.count, SECONDS)
        search = InvertingGradients(
            steps=steps, restarts=self.restarts, tv=self.tv, patience=PATIENCE, culled=HEAT
        )
        solution = search.solve(target, rng)
        return Rebuilt(
            solution.x,
            clients,
            solution.labels,
            objective=solution.objective,
            snapshots=solution.snapshots,
        )
