"""Scale-MIA with a head of our own, which quantisation and collisions do not stop.

Where the paper's second layer is constant and its last layer left to chance, all linear layers are crafted
here: columns that are equal but for known signs keep the logits still, so that a gain can lift the updates to
what the channel carries, and a sample's loss weight is chosen by its class (see `sorting`).
"""

from dataclasses import dataclass
from typing import get_args

import torch
from torch import nn

from glasshouse.access import BlindServerAccess, Protocol
from glasshouse.attacks.crafted.crafting import craft, quieted, rehearsal_clients
from glasshouse.attacks.crafted.latent_attack import LatentAttack
from glasshouse.attacks.crafted.leakage import Law
from glasshouse.attacks.crafted.peeling import suggested_directions, suggested_rounds
from glasshouse.attacks.crafted.reading import CodedModels
from glasshouse.attacks.crafted.sorting import make_sorter
from glasshouse.attacks.crafted.surrogate import Surrogate, shrink
from glasshouse.attacks.inversion.updates import check_scale, one_step
from glasshouse.data.images import Images
from glasshouse.errors import CannotRun
from glasshouse.options import check_choice, check_number, check_whole


@dataclass(frozen=True, kw_only=True)
class CodedScaleMIA(LatentAttack):
    """Scale-MIA improved: a head with weights by class and signed columns, as loud as the channel bears.

    The autoencoder is trained for `steps` of `batch_size` images, unless one is granted. `directions` 0 means
    as many as find most, `rounds` 0 as many as give the samples room: a server may ask the same clients
    again. Where clients clip their single step to an L2 norm, a `norm` keeps updates within it.
    """

    name = "scale-mia-coded"
    directions: int = 1
    rounds: int = 1
    law: Law = "normal"
    norm: float | None = None

    def __post_init__(self) -> None:
        super().__post_init__()
        check_whole(self.name, "directions", self.directions, 0, 8)
        check_whole(self.name, "rounds", self.rounds, 0, 100)
        check_choice(self.name, "law", self.law, get_args(Law))
        if self.norm is not None:
            check_number(self.name, "norm", self.norm, 0, open_low=True)

    def check_protocol(self, protocol: Protocol) -> None:
        super().check_protocol(protocol)
        check_scale(protocol.recipe)

    def craft(
        self, surrogate: Surrogate, access: BlindServerAccess, auxiliary: Images, rng: torch.Generator
    ) -> CodedModels:
        layer = access.protocol.architecture.get_submodule(surrogate.cut.linear[0])
        assert isinstance(layer, nn.Linear)
        samples, width = sum(access.sizes), layer.out_features
        steady = one_step(access.protocol.recipe, access.sizes)
        rounds = self.rounds or suggested_rounds(samples, width, steady)
        rows = rounds * (width - 1) + 1 if rounds > 1 else width
        directions = self.directions or (suggested_directions(samples, rows) if steady else 1)
        if width < 2 or rows < directions:
            raise CannotRun(f"the first linear layer's {rows} rows are too few for {directions} direction(s)")
        if not steady:
            surrogate = shrink(surrogate, access.protocol)
        sorter = make_sorter(surrogate.latents, rows, directions, self.law)
        crafted = craft(surrogate, access, auxiliary, sorter, rng)
        if self.norm is None or not steady:
            return crafted
        return quieted(crafted, rehearsal_clients(auxiliary, access.sizes, rng), self.norm)


@dataclass(frozen=True, kw_only=True)
class PeeledScaleMIA(CodedScaleMIA):
    """Scale-MIA with collisions resolved: a lone sample of one direction is taken out of its other bins."""

    name = "scale-mia-peeled"
    directions: int = 0
    rounds: int = 0
    law: Law = "empirical"
