"""From a method to a trained federation: all that share a seed share images, first weights and chances."""

import time
from copy import deepcopy
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Any

import numpy as np
from torch import nn

from glasshouse.auditing.case import Case, protocol_of
from glasshouse.data.images import Images
from glasshouse.data.partitions import partition
from glasshouse.data.sources import load
from glasshouse.data.split import Split
from glasshouse.federation.federation import Federation, Plan
from glasshouse.federation.history import History, Record
from glasshouse.federation.strategies import STRATEGIES
from glasshouse.findings import Subject
from glasshouse.learning.layout import read_vector, write_vector
from glasshouse.learning.recipe import Recipe
from glasshouse.learning.seeds import derive, numpy_rng
from glasshouse.models.loading import seeded_model
from glasshouse.store import keep, kept
from glasshouse.studies.fed_fsnet.measured import FederationAddress
from glasshouse.studies.fed_fsnet.networks import extracted, source_of, spec_of
from glasshouse.studies.study import Workplace

Options = tuple[tuple[str, Any], ...]
"""Of a strategy: names and values."""

ENDS = 2
"""So many of the first rounds, and of the last, are kept as the server saw them."""


@dataclass(frozen=True)
class Method:
    """A strategy with its options, on clients that hold what `partition` says.

    With an `extractor`, which was trained on the images of that name, all images are replaced by its
    features: server and clients have it, and what travels is about features alone.
    """

    name: str
    strategy: str
    options: Options = ()
    partition: str = "shards(per_client=2)"
    extractor: str = ""


@dataclass(frozen=True)
class Benchmark:
    """A data set and a network, the fraction of clients a round, the methods compared, and how they train.

    `ablations` are changes of Fed-FSNet, `behind` an extractor other methods run, and `options` are those in
    which a strategy differs from its defaults. Federations are `attacked` where what they leak is asked.
    `seeds` are fewer than the scale's where that is not null.
    `held_out` training images are the server's, and what an adversary may know. Membership is asked of
    `nonmembers` and of as many images of clients that took part; `moved` test images are attacked by PGD.
    """

    data: str
    model: str
    fraction: float
    rounds: int
    methods: tuple[Method, ...]
    ablations: tuple[Method, ...] = ()
    behind: tuple[Method, ...] = ()
    attacked: bool = False
    seeds: int | None = None
    epochs: int = 10
    batch: int = 60
    lr: float = 0.01
    options: tuple[tuple[str, Options], ...] = ()
    clients: int = 100
    held_out: int = 2000
    nonmembers: int = 2000
    test: int = 8000
    local_test: int = 500
    moved: int = 300

    @property
    def recipe(self) -> Recipe:
        """How clients train."""
        return Recipe(epochs=self.epochs, batch_size=self.batch, lr=self.lr)

    def strategy(self, method: Method) -> str:
        """The strategy of a method as users type it; the method's options override those of the scale."""
        options = dict(dict(self.options).get(method.strategy, ())) | dict(method.options)
        written = ", ".join(f"{key}={value!r}" for key, value in options.items())
        return f"{method.strategy}({written})" if written else method.strategy

    def subject(self, method: Method) -> Subject:
        """What all findings of a method share."""
        division = method.partition.partition("(")[0]
        return Subject(
            source="",
            defence=None,
            strategy=self.strategy(method),
            data=self.data,
            model=self.model,
            note=f"{_features_of(method)}{self.clients} clients ({division}), {self.fraction:g} of them a "
            f"round, {self.rounds} rounds of {self.epochs} epochs",
        )

    def address(self, kind: str, method: Method) -> FederationAddress:
        """Where a method's cell of a kind is."""
        return FederationAddress(kind, self.data, self.model, self.fraction, method.name)


@dataclass(frozen=True, eq=False)
class TrainedFederation:
    """A finished federation as a case, and core-seconds a round, null where nobody looked at the clock."""

    case: Case
    split: Split
    history: History
    seconds: float | None

    @property
    def acc_global(self) -> list[float]:
        """The accuracy of the global model after each round."""
        return [row.acc_global for row in self.history.rounds if row.acc_global is not None]

    @property
    def acc_local(self) -> list[float]:
        """The mean accuracy of the models that the participants trained, for each round."""
        return [row.acc_local for row in self.history.rounds if row.acc_local is not None]

    @property
    def acc_local_own(self) -> list[float]:
        """The same on the classes that each participant holds."""
        return [row.acc_local_own for row in self.history.rounds if row.acc_local_own is not None]

    @property
    def acc_global_own(self) -> list[float]:
        """The mean accuracy of the global model on the classes that each participant of a round holds."""
        return [row.acc_global_own for row in self.history.rounds if row.acc_global_own is not None]


def _features_of(method: Method) -> str:
    return f"features of an extractor trained on {method.extractor}, " if method.extractor else ""


@lru_cache(maxsize=1)
def undivided(benchmark: Benchmark, seed: int, extractor: str = "") -> Split:
    """The images of one data set and seed, or their features, with all members in one hand."""
    whole = load(benchmark.data)
    rng = numpy_rng(seed, "fed-fsnet", benchmark.data)
    test_sizes = [benchmark.nonmembers, benchmark.test]
    held_out, nonmembers, test = whole.draw([benchmark.held_out], test_sizes, rng)
    taken = np.concatenate([held_out, nonmembers, test])
    members = np.setdiff1d(np.arange(len(whole.train)), taken)
    pool = whole.pool
    if extractor:
        pool = extracted(pool, source_of(extractor, pool[held_out]), seed)
    return Split(pool, (members,), nonmembers, held_out, test)


def divided(benchmark: Benchmark, method: Method, seed: int) -> Split:
    """The same with the members among the clients, as the method's partition says."""
    split = undivided(benchmark, seed, method.extractor)
    (members,) = split.clients
    y = split.pool.y.numpy()[members]
    shares = partition(method.partition, y, benchmark.clients, derive(seed, "partition"))
    return replace(split, clients=tuple(members[positions] for positions in shares))


def first_model(benchmark: Benchmark, images: Images, seed: int) -> nn.Module:
    """The network with the first weights that all methods share."""
    return seeded_model(spec_of(benchmark.model), images.shape, images.classes, derive(seed, "weights"))


def train(benchmark: Benchmark, method: Method, place: Workplace, *, watched: bool) -> TrainedFederation:
    """The federation of a method, kept where all cells find it: what was trained is not trained again.

    Where it is `watched`, the server's view of the first and the last rounds is kept for the attacks.
    """
    split, rounds = divided(benchmark, method, place.seed), benchmark.rounds
    model = first_model(benchmark, split.pool, place.seed)
    federation = Federation(
        model,
        split,
        benchmark.recipe,
        engine=place.engine,
        strategy=STRATEGIES.make(benchmark.strategy(method)),
        local_test=benchmark.local_test,
        seed=derive(place.seed, "federation"),
    )
    folder = place.shared / str(benchmark.address("federations", method)) / f"seed-{place.seed:04d}"
    ends = [number for number in range(rounds) if number < ENDS or number >= rounds - ENDS]
    observe = tuple(ends) if watched else ()
    plan = Plan(rounds=rounds, fraction=benchmark.fraction, observe=observe)
    record = Record(folder)
    before = record.load()
    began = time.process_time()
    history = federation.run(
        read_vector(model), plan, record=record, progress=place.progress, label=method.name
    )
    trained = len(history.rounds) - (len(before.rounds) if before else 0)
    clock = folder / "seconds.json"
    if trained:  # else it has the seconds of those that were trained last
        keep(clock, (time.process_time() - began) / trained)
    final = deepcopy(model)
    write_vector(final, history.vector)
    case = Case(
        subject=benchmark.subject(method),
        protocol=protocol_of(federation, model),
        model=final.eval(),
        rounds=tuple(record.observed(number) for number in observe),
        sizes=tuple(federation.sizes),
        auxiliary=split.images("auxiliary"),
    )
    return TrainedFederation(case, split, history, kept(clock, float))
