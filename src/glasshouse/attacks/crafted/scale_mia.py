"""Scale-MIA: a whole global batch from the sum of the updates, with no change of the network (Shi et al.).

Offline the server trains the network's encoder together with a decoder to reproduce auxiliary images, and
turns the first linear layers into a sorting machine for latents. Online it sends this model, reads latents
from the sum of the updates, and decodes them.
"""

import dataclasses
import time
from collections.abc import Sequence
from dataclasses import dataclass
from typing import get_args

import torch
from torch import Tensor, nn

from glasshouse.access import BlindServerAccess
from glasshouse.attacks.attack import Attack, Knowledge
from glasshouse.attacks.crafted.crafting import craft, quieted, rehearsal_clients
from glasshouse.attacks.crafted.cut import find_cut
from glasshouse.attacks.crafted.leakage import Law
from glasshouse.attacks.crafted.peeling import suggested_directions, suggested_rounds
from glasshouse.attacks.crafted.reading import Crafted
from glasshouse.attacks.crafted.sorting import make_sorter
from glasshouse.attacks.crafted.surrogate import Schooling, Surrogate, kept_surrogate, shrink
from glasshouse.attacks.inversion.updates import check_plain_steps, one_step
from glasshouse.data.images import Images
from glasshouse.errors import CannotRun
from glasshouse.evidence.reconstruction import Rebuilt, Reconstructions
from glasshouse.federation.channels.channel import RoundFailed
from glasshouse.federation.updates import Delivery
from glasshouse.options import check_choice, check_number, check_share, check_whole


@dataclass(frozen=True, kw_only=True)
class ScaleMIA(Attack):
    """Scale-MIA as published: one direction, the latents' brightness, and a normal law for its quantiles.

    Ours are the loss weights, chosen by class where the paper leaves them to chance (see `sorting`). The
    autoencoder is trained for `steps` of `batch_size` images, unless one is granted. `directions` 0 means as
    many as find most, `rounds` 0 as many as give the samples room: a server may ask the same clients again.
    Where clients clip their single step to an L2 norm, a `norm` keeps updates within it.
    """

    steps: int = 12000
    batch_size: int = 64
    lr: float = 3e-3
    directions: int = 1
    rounds: int = 1
    law: Law = "normal"
    norm: float | None = None
    family = "reconstruction"
    needs = (BlindServerAccess,)
    knows = ("auxiliary",)

    def __post_init__(self) -> None:
        check_whole("scale-mia", "steps", self.steps, 1, 10**7)
        check_whole("scale-mia", "batch_size", self.batch_size, 2, 10**5)
        check_whole("scale-mia", "directions", self.directions, 0, 8)
        check_whole("scale-mia", "rounds", self.rounds, 0, 100)
        check_share("scale-mia", "lr", self.lr)
        check_choice("scale-mia", "law", self.law, get_args(Law))
        if self.norm is not None:
            check_number("scale-mia", "norm", self.norm, 0, open_low=True)

    def run(self, access: BlindServerAccess, knowledge: Knowledge, rng: torch.Generator) -> Reconstructions:
        assert knowledge.auxiliary is not None
        check_plain_steps(access.protocol.recipe)
        surrogate = knowledge.surrogate or self.prepare(access, knowledge.auxiliary.x)
        began = time.perf_counter()
        crafted = self.craft(surrogate, access, knowledge.auxiliary, rng)
        offline = surrogate.seconds + time.perf_counter() - began
        return dataclasses.replace(self.attack_rounds(crafted, access), offline=round(offline, 3))

    def prepare(self, access: BlindServerAccess, x: Tensor) -> Surrogate:
        """The offline phase, once for all rounds: an autoencoder of the images `x`, shape (N, C, H, W)."""
        schooling = Schooling(steps=self.steps, batch_size=self.batch_size, lr=self.lr)
        return kept_surrogate(access.protocol, find_cut(access.protocol), x, schooling)

    def craft(
        self, surrogate: Surrogate, access: BlindServerAccess, auxiliary: Images, rng: torch.Generator
    ) -> Crafted:
        """The model to send to all clients of `access`; the same for the same arguments."""
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

    def attack_rounds(self, crafted: Crafted, access: BlindServerAccess) -> Reconstructions:
        """The online phase: send, and rebuild images from what the channel delivers.

        Only rounds that the same clients came through add up: those of the most frequent group are used.
        """
        arrived = _exchanged(access, crafted.vectors)
        groups = [delivery.clients for delivery in arrived if delivery is not None]
        clients = max(groups, key=groups.count)
        began = time.perf_counter()
        counted = [delivery if delivery and delivery.clients == clients else None for delivery in arrived]
        latents = crafted.latents(counted)
        images = crafted.surrogate.decode(latents[: sum(access.sizes[client] for client in clients)])
        online = round(time.perf_counter() - began, 4)
        rounds, lost = len(arrived), counted.count(None)
        note = f"{rounds} rounds with the same clients" if rounds > 1 else None
        if lost:
            note = f"{rounds} rounds, {lost} of them lost because other clients dropped out"
        return Reconstructions((Rebuilt(images, clients),), 0.0, online, note)


@dataclass(frozen=True, kw_only=True)
class PeeledScaleMIA(ScaleMIA):
    """Scale-MIA with collisions resolved: a lone sample of one direction is taken out of its other bins."""

    directions: int = 0
    rounds: int = 0
    law: Law = "empirical"


def _exchanged(access: BlindServerAccess, vectors: Sequence[Tensor]) -> list[Delivery | None]:
    """What each round delivers; those that fail are null, unless all do."""
    arrived: list[Delivery | None] = []
    failures: list[RoundFailed] = []
    for vector in vectors:
        try:
            arrived.append(access.exchange(vector, range(len(access.sizes))))
        except RoundFailed as failure:
            arrived.append(None)
            failures.append(failure)
    if len(failures) == len(arrived):
        raise failures[0]
    return arrived
