"""Attacks that compare the target with shadow models, or learn from them where to draw the line."""

from dataclasses import dataclass

from glasshouse.attacks.attack import Attack
from glasshouse.options import check_flag


@dataclass(frozen=True, kw_only=True)
class ShadowAttack(Attack):
    """An attack of somebody who trains shadow models.

    If it is `adaptive`, they are trained under the defences that the clients use; else under none.
    """

    adaptive: bool = False

    def __post_init__(self) -> None:
        check_flag(type(self).__name__, "adaptive", self.adaptive)
