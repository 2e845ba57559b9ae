"""The networks under attack, the attacker's autoencoders, and rounds with victims that nobody has seen."""

import dataclasses
import json
from dataclasses import dataclass

import numpy as np
from torch import Tensor, nn

from glasshouse.access import Access, BlindServerAccess, Protocol, ServerAccess, UpdateAccess
from glasshouse.attacks.attack import required
from glasshouse.attacks.crafted.cut import find_cut
from glasshouse.attacks.crafted.surrogate import Schooling, Surrogate, make_surrogate, restored
from glasshouse.auditing.case import Case, protocol_of
from glasshouse.data.dataset import Dataset
from glasshouse.data.images import Images
from glasshouse.data.sources import load
from glasshouse.data.split import Split
from glasshouse.data.stratify import stratified
from glasshouse.defences import make_defences
from glasshouse.errors import BadInput
from glasshouse.evidence.truth import NOBODY, Truth
from glasshouse.federation.channels import CHANNELS
from glasshouse.federation.federation import Federation
from glasshouse.federation.history import Observed
from glasshouse.federation.live import LiveClients
from glasshouse.federation.strategies import STRATEGIES
from glasshouse.findings import Subject
from glasshouse.learning.layout import Layout, read_vector
from glasshouse.learning.recipe import Recipe
from glasshouse.learning.seeds import derive, numpy_rng, torch_rng
from glasshouse.models.loading import seeded_model
from glasshouse.store import read_tensors, write_tensors
from glasshouse.studies.study import Latest, Workplace

FIRST_CLASS = 5
"""Where the attacker has some classes only, they are those from this one on: the dogs of CIFAR-10."""

TEST_SHARE = 0.4
"""The share of the images that clients hold where a data set has no test images of its own."""

GRANTED = 10_000
"""As many auxiliary images are granted beside the autoencoder: no guess and no statistics take more."""

HELD, HELD_SHARE = 500, 0.1
"""So many of the attacker's images, or such a share where they are few, show what its autoencoder can do."""

CLIENTS = 8
"""As many clients are in a sum as in the paper, if they can share the batch equally."""

STEP = Recipe(batch_size=0, lr=0.1)
"""As in the paper: one step of learning rate 0.1 on all of a client's images."""


GRADIENTS, WEIGHTS = "fedsgd(gradients=True)", "fedsgd"
"""What clients send: gradients, as in the paper, or how their weights changed, as in its authors' code."""


@dataclass(frozen=True)
class Scenario:
    """A network for some data, and the images that the attacker trains its autoencoder on.

    They are a `share` of the training images, of the first `classes` classes (null: all). Clients hold test
    images, of these classes only. Training images of these classes that are left out of training are held
    to see how far it went.
    """

    network: str
    data: str
    schooling: Schooling
    share: float = 1.0
    classes: int | None = None

    @property
    def granted(self) -> str:
        """What the attacker has, in short: `all`, a share, or some classes."""
        if self.classes:
            return f"{self.classes}-classes"
        return f"{self.share:g}" if self.share < 1 else "all"

    @property
    def stem(self) -> str:
        """How the file of its autoencoder is named."""
        return f"{self.network}-{self.data}-{self.granted}-{self.schooling.steps}-steps"


@dataclass(frozen=True, eq=False)
class Prepared:
    """A scenario with its images: the attacker's, and the clients' in the order in which rounds use them.

    The autoencoder is there where an attack needs it; it was not trained on the images that are `held`.
    """

    scenario: Scenario
    network: nn.Module
    auxiliary: Images
    held: Images
    victims: Images
    surrogate: Surrogate | None

    @property
    def neurons(self) -> int:
        """The width of the first linear layer, k."""
        layer = self.network.get_submodule(required(self.surrogate).cut.linear[0])
        assert isinstance(layer, nn.Linear)
        return layer.out_features


@dataclass(frozen=True)
class RoundPlan:
    """Rounds with a batch each: how many samples to see, in how many rounds at most, and what clients do.

    `options` are those of the channel `secure`; an `ideal` one delivers the exact sum of all clients, as the
    paper has it. A `passive` server crafts nothing and reads the update of one client, which holds the whole
    batch.
    """

    batch: int
    samples: int
    most: int
    options: tuple[str, ...] = ()
    recipe: Recipe = STEP
    strategy: str = GRADIENTS
    defence: str = "none"
    passive: bool = False
    ideal: bool = False

    @property
    def rounds(self) -> int:
        return max(1, min(self.most, -(-self.samples // self.batch)))

    @property
    def clients(self) -> int:
        """How many clients are in the sum, with equal shares of the batch."""
        if self.passive:
            return 1
        return next(count for count in (CLIENTS, 10, self.batch) if self.batch % count == 0)

    @property
    def present(self) -> int:
        """How many take part: of eight or more one vanishes before it masks, and one after, but is summed."""
        return self.clients + (self.clients >= CLIENTS and not self.ideal)

    @property
    def adversary(self) -> type[Access]:
        """Who attacks; the sum of one client is its update, so that a server with one client is not blind."""
        if self.passive:
            return UpdateAccess
        return ServerAccess if self.clients == 1 else BlindServerAccess

    @property
    def channel(self) -> str:
        if self.clients == 1:
            return "plain"
        if self.ideal:
            return "ideal"
        lossy = self.present > self.clients
        dropouts = [f"dropout_{when}={1 / self.present:.6f}" for when in ("before", "after") if lossy]
        return f"secure({', '.join([*self.options, *dropouts])})"


def cases(prepared: Prepared, plan: RoundPlan, place: Workplace) -> list[Case]:
    """A case for each round, whose clients and images no other round has."""
    scenario, present, share = prepared.scenario, plan.present, plan.batch // plan.clients
    there, needed = len(prepared.victims), present * share
    rounds = min(plan.rounds, there // needed)
    if not rounds:
        raise BadInput(f"{there} images of {scenario.stem} are too few for {needed} in a round")
    pool = prepared.victims[: rounds * needed]
    held = tuple(np.arange(len(pool)).reshape(-1, share))
    federation = Federation(
        prepared.network,
        Split(pool, held, NOBODY, NOBODY, NOBODY),
        plan.recipe,
        engine=place.engine,
        strategy=STRATEGIES.make(plan.strategy),
        defences=make_defences(plan.defence),
        channel=CHANNELS.make(plan.channel),
        seed=derive(place.seed, "stage"),
    )
    start, auxiliary = read_vector(prepared.network), prepared.auxiliary[:GRANTED]
    subject = Subject(
        defence=plan.defence, strategy=plan.strategy, data=scenario.data, model=scenario.network
    )
    return [
        Case(
            subject=subject,
            protocol=protocol_of(federation, prepared.network),
            rounds=(_observed(federation, start, first),) if plan.passive else (),
            sizes=(share,) * present,
            clients=None
            if plan.passive
            else LiveClients(federation, start, range(first, first + present), first // present),
            truth=Truth(pool, held[first : first + present]),
            auxiliary=auxiliary,
            surrogate=prepared.surrogate,
        )
        for first in range(0, rounds * present, present)
    ]


def _observed(federation: Federation, start: Tensor, client: int) -> Observed:
    """A round of one client, which is numbered 0 there, as a curious server sees it."""
    delivery = federation.exchange(start, [client], client).delivery
    updates = tuple(dataclasses.replace(update, client=0) for update in required(delivery.updates))
    return Observed(client, start, dataclasses.replace(delivery, clients=(0,), updates=updates))


class Scenarios:
    """Prepares scenarios, and keeps the last one and its data set in memory for the next cell that asks."""

    def __init__(self) -> None:
        self._datasets: Latest[Dataset] = Latest()
        self._latest: Latest[Prepared] = Latest()

    def prepared(self, scenario: Scenario, place: Workplace, *, schooled: bool = True) -> Prepared:
        """The scenario, if `schooled` with its autoencoder, read from the shared folder if it is there."""
        key = (scenario, place.seed, place.shared, schooled)
        return self._latest.get(key, lambda: self._prepare(scenario, place, schooled))

    def _prepare(self, scenario: Scenario, place: Workplace, schooled: bool) -> Prepared:
        dataset = self._datasets.get(scenario.data, lambda: load(scenario.data))
        auxiliary, held, victims = divided(dataset, scenario, place.seed)
        seed = derive(place.seed, "weights")
        network = seeded_model(scenario.network, auxiliary.shape, auxiliary.classes, seed)
        surrogate = _surrogate(scenario, network, auxiliary, place) if schooled else None
        return Prepared(scenario, network, auxiliary, held, victims, surrogate)


SCENARIOS = Scenarios()
"""Those of this process: cells follow one another by scenario."""


def divided(dataset: Dataset, scenario: Scenario, seed: int) -> tuple[Images, Images, Images]:
    """The images that the attacker trains on, those that are held, and the clients'; all shuffled.

    No part of the attack has seen the clients', and none chooses anything by those that are held.
    """
    train, test = dataset.train, dataset.test
    rng = numpy_rng(seed, "images")
    known, unseen = np.arange(len(train)), np.arange(len(test or train))
    if test is None:
        test, held = train, round(TEST_SHARE * len(train))
        known, unseen = stratified(train.y.numpy(), [len(train) - held, held], rng)
    classes = (np.arange(scenario.classes or train.classes) + FIRST_CLASS) % train.classes
    known, unseen = (
        positions[np.isin(images.y.numpy()[positions], classes)]
        for images, positions in ((train, known), (test, unseen))
    )
    most = min(HELD, round(HELD_SHARE * len(known)))
    trained = min(round(scenario.share * len(known)), len(known) - most)
    parts = stratified(train.y.numpy()[known], [trained, most], rng)
    seen, held = (known[part[rng.permutation(len(part))]] for part in parts)
    return train[seen], train[held], test[unseen[rng.permutation(len(unseen))]]


def _surrogate(scenario: Scenario, network: nn.Module, auxiliary: Images, place: Workplace) -> Surrogate:
    """The autoencoder, from its file or trained now."""
    file = place.shared / f"{scenario.stem}-seed-{place.seed}.safetensors"
    protocol = Protocol(network, Layout.of(network), Recipe(), auxiliary.shape, auxiliary.classes)
    cut, schooling = find_cut(protocol), scenario.schooling
    made_of = json.dumps({"schooling": str(schooling), "images": len(auxiliary)})
    if file.exists():
        tensors, notes = read_tensors(file)
        if notes.get("made_of") != made_of:
            raise BadInput(f"{file} holds an autoencoder of another kind; delete it and run again")
        return restored(protocol, cut, tensors, schooling, float(notes["seconds"]))
    with place.progress.task(f"autoencoder, {scenario.stem}", schooling.steps) as task:
        rng = torch_rng(place.seed, "autoencoder", scenario.stem)
        surrogate = make_surrogate(protocol, cut, auxiliary.x, schooling, rng, advance=task.advance)
    write_tensors(file, surrogate.tensors(), {"made_of": made_of, "seconds": f"{surrogate.seconds:.3f}"})
    return surrogate
