"""The thing under attack, as a value."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass

from torch import nn

from glasshouse.access import Protocol
from glasshouse.attacks.crafted.surrogate import Surrogate
from glasshouse.data.images import Images
from glasshouse.defences.defence import Stack
from glasshouse.defences.promise import Promise
from glasshouse.evidence.truth import Truth
from glasshouse.federation.canaries import Directions
from glasshouse.federation.federation import Federation
from glasshouse.federation.history import Observed
from glasshouse.federation.live import LiveClients
from glasshouse.federation.shadows import Shadows
from glasshouse.findings import Subject

ShadowSource = Callable[[str], Shadows]
"""Where `shadows` and `online_shadows`, and with `defended_` before it those that were trained under the
clients' defences, come from; raises `CannotRun` where there are none to be had."""


@dataclass(frozen=True, eq=False, kw_only=True)
class Case:
    """Everything that can be attacked, whoever made it; what a case does not hold, nobody can attack.

    The final `model` is in eval mode. The servers' view are the `rounds` that were seen, in which a client
    has as many samples as `sizes` says, unless the round itself says it. Live `clients` are for servers that
    choose what they send. `truth` is the auditor's alone. What an attack may be granted beyond its access
    stands in `auxiliary`, `shadows`, `surrogate`, an autoencoder of the auxiliary images, and `defence`: the
    clients' defences, made from their settings for this purpose alone; null where nobody knows them.
    `promises` is the differential privacy that they give, `directions` those of canary clients.
    """

    subject: Subject
    protocol: Protocol
    model: nn.Module | None = None
    rounds: tuple[Observed, ...] = ()
    sizes: tuple[int, ...] = ()
    clients: LiveClients | None = None
    truth: Truth | None = None
    auxiliary: Images | None = None
    shadows: ShadowSource | None = None
    surrogate: Surrogate | None = None
    defence: Stack | None = None
    promises: tuple[Promise, ...] = ()
    directions: Directions | None = None

    def sizes_in(self, observed: Observed) -> Mapping[int, int] | tuple[int, ...]:
        """How many samples each client has in a round, by its number."""
        return observed.sizes or self.sizes


def protocol_of(federation: Federation, architecture: nn.Module) -> Protocol:
    """What everybody knows who takes part in a federation that trains `architecture`."""
    return Protocol(
        architecture,
        federation.layout,
        federation.recipe,
        federation.shape,
        federation.classes,
        federation.channel,
        federation.strategy,
    )
