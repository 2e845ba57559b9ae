"""What attacks cost, in seconds of a core, before they run: from their options and the pace of the model.

Each estimate is of what an attack does most: passes of the network, rounds with clients, or a search for a
given time. Factors that no option tells were measured on the embedded example and on MNIST with LeNet.
"""

from dataclasses import dataclass
from functools import cached_property

from torch import nn

from glasshouse.access import Access, AggregateAccess, BlindServerAccess, ServerAccess
from glasshouse.attacks import ATTACKS
from glasshouse.attacks.attack import Attack, declared
from glasshouse.attacks.crafted.latent_attack import LatentAttack
from glasshouse.attacks.crafted.saturated_head import SaturatedHead
from glasshouse.attacks.crafted.singling import SinglingOut
from glasshouse.attacks.evasion.evasion import Evasion, is_grey, limits
from glasshouse.attacks.evasion.pgd import STEPS
from glasshouse.attacks.evasion.strongest import Strongest
from glasshouse.attacks.inversion.effort import LAYER, SPEED, operations
from glasshouse.attacks.inversion.inversion import UpdateInversion
from glasshouse.attacks.inversion.matching import GradientMatching
from glasshouse.attacks.inversion.strongest import StrongestInversion
from glasshouse.attacks.membership.alignment import GradientAlignment
from glasshouse.attacks.membership.readings import ServerMembership
from glasshouse.attacks.membership.trajectory import SourceInference
from glasshouse.auditing.experiment import Experiment
from glasshouse.auditing.planning.pace import Pace

ALIVE = 0.7
"""The share of the images that an evasion attack still works on, on average over its steps."""

LONG_ALIVE = 0.4
"""The same for the ensemble, of which each member gets what the one before it left."""

DIRECTIONS = 3.0
"""Forward passes that a derivative along one direction takes."""

DECODING = 2e-3
"""Seconds of a step of an autoencoder's training, beside those of the network's own passes."""

SECRETS, MASKS = 1.3e-4, 1.4e-9
"""Seconds for each pair of clients behind masks, and for each pair and entry."""

USUAL_ROUNDS = 4
"""Rounds of a crafting server that chooses itself how many it takes."""

RECORD = 5e-5
"""Seconds for a record that an attack thinks about, beside asking the model."""

LEAST = 0.02


@dataclass(frozen=True)
class Load:
    """The numbers of one target that costs go by; `client` are the seconds of a client's part of a round.

    The server sees `rounds` rounds of a `cohort`; `clients` are all that a crafting server can ask.
    """

    experiment: Experiment
    pace: Pace
    client: float
    rounds: int
    cohort: int
    clients: int

    @property
    def records(self) -> int:
        """Candidates and auxiliary records."""
        split = self.experiment.split
        return len(split.members) + len(split.nonmembers) + len(split.auxiliary)

    @property
    def tested(self) -> int:
        """Images that evasion attacks start from; those of a finished model are its non-members."""
        split = self.experiment.split
        return len(split.test) or len(split.nonmembers)

    @property
    def network(self) -> nn.Module:
        """What is attacked."""
        return self.experiment.model

    @cached_property
    def search_step(self) -> float:
        """The seconds of a step of a search for one image, as `affordable_steps` counts them."""
        layers = sum(not list(module.children()) for module in self.network.modules())
        return LAYER * layers + operations(self.network, self.experiment.split.pool.shape) / SPEED

    def exchange(self, blind: bool) -> float:
        """The seconds of a round with all clients, behind masks where the server is blind."""
        entries = len(self.experiment.start)
        masked = self.clients**2 * (SECRETS + MASKS * entries) * self.pace.fixed if blind else 0.0
        return self.clients * self.client + masked


def effort(spec: str, access: type[Access], load: Load, *, prepared: float = 0.0) -> float:
    """About how many seconds of a core the attack takes as the adversary with `access`.

    A share `prepared` of what a worker prepares once, for all targets, is there already.
    """
    attack: Attack = ATTACKS.make(spec)
    fixed = load.pace.fixed
    if isinstance(attack, Evasion):
        return LEAST + _evading(attack, load)
    if isinstance(attack, UpdateInversion):
        return LEAST + _inverting(attack, load) * fixed
    if issubclass(access, ServerAccess):
        return LEAST + _crafting(attack, access, load, 1 - prepared)
    if isinstance(attack, ServerMembership | SourceInference):
        return LEAST + _reading(attack, access, load)
    seconds = declared(attack, "seconds")
    if isinstance(seconds, int | float):
        return float(seconds)
    return LEAST + load.records * (load.pace.ask + RECORD * fixed)


def _evading(attack: Evasion, load: Load) -> float:
    images = load.experiment.split.pool[:1]
    sizes, count = (
        len([eps for eps in limits(attack.eps, images) if eps > 0]),
        load.tested,
    )
    if isinstance(attack, Strongest):
        steps = attack.steps * (attack.restarts * (1 + attack.targets) + 2 * attack.targets)
        passes = steps * load.pace.climb + attack.queries * load.pace.ask
        return LONG_ALIVE * sizes * count * passes
    tries = attack.tries(images)
    queries = declared(attack, "queries")
    if isinstance(queries, int):
        return LONG_ALIVE * sizes * count * queries * tries * load.pace.ask
    steps = getattr(attack, "steps", 1) or STEPS["grey" if is_grey(images) else "colour"]
    return ALIVE * sizes * count * steps * tries * load.pace.climb


def _inverting(attack: UpdateInversion, load: Load) -> float:
    seconds = declared(attack, "seconds")
    if isinstance(attack, StrongestInversion):
        return attack.seconds
    if isinstance(attack, GradientMatching):
        searched = attack.updates * attack.steps * attack.restarts * attack.most * load.search_step
        return searched if attack.seconds is None else min(searched, attack.updates * attack.seconds)
    return attack.updates * (seconds if isinstance(seconds, int | float) else 0.1)


def _crafting(attack: Attack, access: type[Access], load: Load, unprepared: float) -> float:
    exchange = load.exchange(issubclass(access, BlindServerAccess))
    if isinstance(attack, SaturatedHead):
        return 2 * (attack.repeats if attack.adaptive else 1) * exchange
    if isinstance(attack, LatentAttack):
        rounds = declared(attack, "rounds")
        taken = rounds if isinstance(rounds, int) and rounds else USUAL_ROUNDS
        return taken * exchange + unprepared * _schooling(attack, load)
    if isinstance(attack, SinglingOut):
        return 10 * USUAL_ROUNDS * exchange
    return USUAL_ROUNDS * exchange  # one round of a network that is made larger


def _schooling(attack: LatentAttack, load: Load) -> float:
    """Training the autoencoder, which a worker does once."""
    return attack.steps * (attack.batch_size * load.pace.climb + DECODING * load.pace.fixed)


def _reading(attack: ServerMembership | SourceInference, access: type[Access], load: Load) -> float:
    models = 2 if issubclass(access, AggregateAccess) else load.cohort + 2
    records = load.records
    if isinstance(attack, SourceInference):
        records -= len(load.experiment.split.auxiliary)
    ask = load.pace.ask
    if isinstance(attack, GradientAlignment) and attack.layers == "all":
        ask *= DIRECTIONS
    return load.rounds * models * records * (ask + RECORD / 20 * load.pace.fixed)
