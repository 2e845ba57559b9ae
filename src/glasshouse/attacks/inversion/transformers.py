"""Published inversions of vision transformers, as presets of the common loop."""

from dataclasses import dataclass

from torch import Tensor, nn

from glasshouse.access import Protocol
from glasshouse.attacks.attack import Knowledge, required
from glasshouse.attacks.inversion.april import is_position
from glasshouse.attacks.inversion.distances import cosine
from glasshouse.attacks.inversion.matching import GradientMatching
from glasshouse.attacks.inversion.priors import StatisticsPrior, patch_seams, running_statistics
from glasshouse.attacks.inversion.target import Matcher, Target
from glasshouse.attacks.inversion.updates import AttackedUpdate
from glasshouse.errors import CannotRun
from glasshouse.learning.fit import fit
from glasshouse.learning.layout import read_vector, write_vector
from glasshouse.learning.recipe import Recipe
from glasshouse.models.freezing import exchanged
from glasshouse.models.loading import seeded_model
from glasshouse.options import check_choice, check_number, check_whole


@dataclass(frozen=True, kw_only=True)
class GradViT(GradientMatching):
    """GradViT: no seams between patches, and a convolutional network's statistics (Hatamizadeh et al. 2022).

    In the first half of the way only gradients count; then come the seams, weighed by `patch`, and the batch
    norm statistics of a network that the attacker trains on auxiliary images, `epochs` times over.
    """

    name = "gradvit"
    labels: str = "smallest"
    distance: str = "l2"
    steps: int = 20_000
    schedule: str = "cosine"
    warmup: int = 50
    signed: bool = False
    langevin: float = 0.02
    tv: float = 1e-4
    l2: float = 1e-6
    batch_norm: float = 0.1
    statistics: str = "auxiliary"
    patch: float = 1e-4
    epochs: int = 10

    def __post_init__(self) -> None:
        super().__post_init__()
        check_choice(self.name, "statistics", self.statistics, ("auxiliary",))
        check_number(self.name, "patch", self.patch, 0)
        check_whole(self.name, "epochs", self.epochs, 1)

    def check_protocol(self, protocol: Protocol, samples: int) -> None:
        super().check_protocol(protocol, samples)
        patch_side(protocol.architecture)

    def prior_weight(self, share: float) -> float:
        return float(share >= 0.5)

    def penalty(self, x: Tensor, target: Target) -> Tensor:
        seams = patch_seams(x, patch_side(target.network))
        return super().penalty(x, target) + self.patch * seams

    def statistics_prior(
        self, update: AttackedUpdate, target: Target, knowledge: Knowledge
    ) -> StatisticsPrior | None:
        """Statistics of a convolutional network: a transformer has none of its own."""
        if not self.batch_norm:
            return None
        images, seed = required(knowledge.auxiliary), 0
        network = seeded_model("c1", images.shape, images.classes, seed)
        recipe = Recipe(epochs=self.epochs, batch_size=min(64, len(images)), lr=0.01, momentum=0.9)
        write_vector(network, fit(network, read_vector(network), images, recipe, seed))
        return StatisticsPrior(network.eval(), running_statistics(network))


@dataclass(frozen=True, kw_only=True)
class APRILOptim(GradientMatching):
    """APRIL by optimisation: gradients match, above all the positions' direction (Lu et al. 2022).

    `position` weighs the angle between the gradients of the learned positions.
    """

    name = "april-optim"
    most: int = 1
    labels: str = "idlg"
    distance: str = "l2"
    signed: bool = False
    boxed: bool = True
    schedule: str = "cosine"
    position: float = 1.0

    def __post_init__(self) -> None:
        super().__post_init__()
        check_number(self.name, "position", self.position, 0)

    def check_protocol(self, protocol: Protocol, samples: int) -> None:
        super().check_protocol(protocol, samples)
        position_name(list(exchanged(protocol.architecture)))

    def discrepancy(self, gradient: list[Tensor], matcher: Matcher) -> Tensor:
        place = matcher.names.index(position_name(matcher.names))
        angle = cosine([gradient[place]], [matcher.seen[place]], [1.0])
        return super().discrepancy(gradient, matcher) + self.position * angle


def patch_side(network: nn.Module) -> int:
    """The side of the patches that a transformer cuts, in pixels."""
    for module in network.modules():
        if isinstance(module, nn.Conv2d):
            if module.kernel_size == module.stride and module.kernel_size[0] > 1:
                return module.kernel_size[0]
            break
        side = getattr(module, "side", None) or getattr(module, "patch_size", None)
        if isinstance(side, int) and side > 0:
            return side
    raise CannotRun("the network does not say how it cuts images into patches")


def position_name(names: list[str]) -> str:
    """Which of these parameters are the learned positions."""
    for name in names:
        if is_position(name):
            return name
    raise CannotRun("the network has no learned positions, a parameter whose name begins with 'pos'")
