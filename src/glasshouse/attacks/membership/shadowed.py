"""Attacks that compare the target with shadow models, or learn from them where to draw the line."""

from dataclasses import dataclass
from typing import ClassVar

from glasshouse.attacks.attack import Attack
from glasshouse.attacks.membership.signals import FEWEST
from glasshouse.options import check_flag


@dataclass(frozen=True, kw_only=True)
class ShadowAttack(Attack):
    """An attack of somebody who trains shadow models.

    If it is `adaptive`, they are trained under the defences that the clients use; else under none. It takes
    `fewest_shadows`.
    """

    fewest_shadows: ClassVar[int] = FEWEST
    adaptive: bool = False

    def __post_init__(self) -> None:
        check_flag(type(self).__name__, "adaptive", self.adaptive)
