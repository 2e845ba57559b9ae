"""The family of Scale-MIA: latents read from the sum of the updates, and decoded into images.

Offline the server trains the network's encoder together with a decoder to reproduce auxiliary images. Online
it sends this encoder before linear layers that sort latents, reads latents from the sum of the updates, and
decodes them. How the linear layers are crafted, and read, is what members differ in.
"""

import dataclasses
import time
from abc import abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor

from glasshouse.access import BlindServerAccess, Protocol
from glasshouse.attacks.attack import Attack, Knowledge
from glasshouse.attacks.crafted.cut import Cut, find_cut
from glasshouse.attacks.crafted.reading import Crafted
from glasshouse.attacks.crafted.surrogate import Schooling, Surrogate, kept_surrogate
from glasshouse.attacks.inversion.updates import check_plain_steps
from glasshouse.data.images import Images
from glasshouse.errors import reason_of
from glasshouse.evidence.reconstruction import Rebuilt, Reconstructions
from glasshouse.federation.channels.channel import RoundFailed
from glasshouse.federation.updates import Delivery
from glasshouse.options import check_share, check_whole


@dataclass(frozen=True, kw_only=True)
class LatentAttack(Attack):
    """Prepares an autoencoder, crafts, sends, reads and decodes; a member crafts.

    The autoencoder is trained for `steps` of `batch_size` images, unless one is granted.
    """

    name: ClassVar[str]
    steps: int = 12000
    batch_size: int = 64
    lr: float = 3e-3
    family = "reconstruction"
    needs = (BlindServerAccess,)
    knows = ("auxiliary",)

    def __post_init__(self) -> None:
        check_whole(self.name, "steps", self.steps, 1, 10**7)
        check_whole(self.name, "batch_size", self.batch_size, 2, 10**5)
        check_share(self.name, "lr", self.lr)

    def cannot(self, protocol: Protocol, samples: int) -> str | None:
        return reason_of(self.check_protocol, protocol)

    def run(self, access: BlindServerAccess, knowledge: Knowledge, rng: torch.Generator) -> Reconstructions:
        assert knowledge.auxiliary is not None
        surrogate = knowledge.surrogate or self.prepare(access, knowledge.auxiliary.x)
        began = time.perf_counter()
        crafted = self.craft(surrogate, access, knowledge.auxiliary, rng)
        offline = surrogate.seconds + time.perf_counter() - began
        return dataclasses.replace(self.attack_rounds(crafted, access), offline=round(offline, 3))

    def check_protocol(self, protocol: Protocol) -> None:
        """Raise `CannotRun` where the recipe or the network does not allow the attack."""
        check_plain_steps(protocol.recipe)
        self.check_cut(find_cut(protocol))

    def check_cut(self, cut: Cut) -> None:
        """Raise `CannotRun` where the network's linear layers do not allow the attack."""

    def prepare(self, access: BlindServerAccess, x: Tensor) -> Surrogate:
        """The offline phase, once for all rounds: an autoencoder of the images `x`, shape (N, C, H, W)."""
        schooling = Schooling(steps=self.steps, batch_size=self.batch_size, lr=self.lr)
        return kept_surrogate(access.protocol, find_cut(access.protocol), x, schooling)

    @abstractmethod
    def craft(
        self, surrogate: Surrogate, access: BlindServerAccess, auxiliary: Images, rng: torch.Generator
    ) -> Crafted:
        """The models to send to all clients of `access`; the same for the same arguments."""

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
