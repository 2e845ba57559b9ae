"""From a setting to the things it names: data divided among clients, a network and its first weights."""

import hashlib
from copy import deepcopy
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
from torch import Tensor, nn

from glasshouse.attacks import ATTACKS
from glasshouse.auditing.setting import Setting, as_toml
from glasshouse.data.images import Images
from glasshouse.data.sources import FUNCTION, as_dataset, load
from glasshouse.data.split import Split, split
from glasshouse.defences import make_defences, split_defences
from glasshouse.errors import BadInput
from glasshouse.evidence.truth import NOBODY, Truth
from glasshouse.federation.canaries import CanaryClients
from glasshouse.federation.channels import CHANNELS
from glasshouse.federation.conditions import (
    Plan,
    check_compatible,
    check_uncut,
    conditions_of,
    defended_channel,
)
from glasshouse.federation.strategies import STRATEGIES
from glasshouse.federation.strategies.strategy import ServerState, Strategy
from glasshouse.findings import Subject
from glasshouse.learning.layout import Layout, read_vector
from glasshouse.learning.seeds import derive, numpy_rng
from glasshouse.models.loading import check_output, load_weights, reinitialised, seeded_model
from glasshouse.provenance import Origin, digest_of_types, own_code, versions
from glasshouse.verdicts.limits import read_limits


@dataclass(frozen=True, eq=False)
class Experiment:
    """What an audit works on; `start` is the state its training begins with, shape (P,).

    `fresh_weights` says that the start was drawn at random, so that others can draw their own with `fresh`;
    `live` that the network was handed over as an object and not by a name; `by_user` that whole users, not
    single records, were drawn as members. The last clients may be `canaries`.
    """

    setting: Setting
    split: Split
    model: nn.Module
    start: Tensor
    fresh_weights: bool
    by_user: bool = False
    live: bool = False
    canaries: CanaryClients | None = None

    @cached_property
    def auxiliary(self) -> Images:
        """What adversaries may use as they like."""
        return self.split.images("auxiliary")

    @cached_property
    def truth(self) -> Truth:
        """What the auditor knows: all members and non-members are candidates, in an order that tells nothing.

        Where there are no non-members, there are no candidates.
        """
        held, seed = self.split, self.setting.seed
        candidates, holder = held.pool[:0], NOBODY
        if len(held.nonmembers):
            of_clients = np.concatenate(held.clients)
            owner = np.repeat(np.arange(len(held.clients)), [len(positions) for positions in held.clients])
            by_position = np.argsort(of_clients)  # so that the order is the same however members are divided
            positions = np.concatenate([of_clients[by_position], held.nonmembers])
            holder = np.concatenate([owner[by_position], np.full(len(held.nonmembers), -1)])
            order = numpy_rng(seed, "candidates").permutation(len(positions))
            candidates, holder = held.pool[positions[order]], holder[order]
        return Truth(
            held.pool,
            held.clients,
            candidates,
            holder,
            test=held.images("test"),
            by_user=self.by_user,
            seed=seed,
        )

    def subject(self, strategy: str, defence: str) -> Subject:
        """What the findings about one trained model are about."""
        setting = self.setting
        return Subject(
            source="audit",
            defence=defence,
            strategy=strategy,
            data=setting.data.name,
            model=setting.model.name,
            seed=setting.seed,
        )

    def fresh(self, seed: int) -> Tensor:
        """First weights for another model of the same kind, shape (P,)."""
        if not self.fresh_weights:
            return self.start
        if self.live:
            return read_vector(reinitialised(self.model, seed))
        pool = self.split.pool
        name = self.setting.model.name
        return read_vector(seeded_model(name, pool.shape, pool.classes, seed, like=self.model))

    def config(self) -> str:
        """The configuration as TOML."""
        return (f"# {self.copies}\n" if self.copies else "") + as_toml(self.setting)

    @cached_property
    def origin(self) -> Origin:
        """What the numbers will come from."""
        setting = self.setting
        named = [setting.training.strategy, setting.training.channel]
        named += [name for name in (setting.data.name, setting.model.name) if FUNCTION.fullmatch(name)]
        network = digest_of_types(type(layer) for layer in self.model.modules())
        defences = [part for defence in setting.audit.named_defences for part in split_defences(defence)]
        return Origin(
            code=versions() | own_code(named) | ({"the network": network} if network else {}),
            parts=own_code([*setting.audit.attacks, *defences]),
            given={
                "data": fingerprint(self.split.pool.x, self.split.pool.y),
                "first weights": fingerprint(self.start),
            },
        )

    @property
    def copies(self) -> str:
        """What was done about images that occur more than once, in words; nothing where none do."""
        split = self.split
        if not split.duplicates:
            return ""
        return (
            f"{split.duplicates} images are copies of others; no two of members, non-members, auxiliary and "
            f"test images have the same, and {split.left_out} were left out for that"
        )


def prepare(setting: Setting, dataset: Any = None, model: nn.Module | None = None) -> Experiment:
    """Load and check everything that `setting` names; objects given directly stand in for their names.

    A data set is a `Dataset`, `Images`, or arrays (x, y); two of the latter are for training and for testing.
    """
    check_names(setting)
    if dataset is None:
        data = load(setting.data.name)
    else:
        data = as_dataset(getattr(dataset, "name", "your data"), dataset, "the data set")
    shape, classes = data.train.shape, data.train.classes
    if model is None:
        network = seeded_model(setting.model.name, shape, classes, derive(setting.seed, "weights"))
    else:
        check_output(model, type(model).__name__, shape, classes)
        network = deepcopy(model)
    if setting.model.weights:
        load_weights(network, setting.model.weights)
    named = setting.data.model_copy(update={"name": data.name})
    called = (
        setting.model if model is None else setting.model.model_copy(update={"name": type(model).__name__})
    )
    setting = setting.model_copy(
        update={"data": named if dataset is not None else setting.data, "model": called}
    )
    holders = split(
        data,
        clients=setting.data.clients or None,
        partition=setting.data.partition,
        members=setting.data.members,
        nonmembers=setting.data.nonmembers,
        auxiliary=setting.data.auxiliary,
        test=setting.data.test,
        seed=derive(setting.seed, "split"),
    )
    _check_task(STRATEGIES.make(setting.training.strategy), network, holders)
    for defence in setting.audit.named_defences:
        check_trainable(setting, defence, network, holders)
    drawn = model is None and not setting.model.weights
    return Experiment(setting, holders, network, read_vector(network), drawn, data.users is not None)


def check_names(setting: Setting) -> None:
    """Refuse unknown strategies, attacks, defences, limits and numbers before any work is done."""
    read_limits(setting.audit.limits)
    for attack in setting.audit.attacks:
        ATTACKS.make(attack)
    for defence in ("none", *setting.audit.named_defences):
        check_defence(setting, defence)


def check_defence(setting: Setting, defence: str) -> None:
    """Refuse a defence that does not go with the setting's strategy, recipe and channel."""
    strategy: Strategy = STRATEGIES.make(setting.training.strategy)
    channel, stack = CHANNELS.make(setting.training.channel), make_defences(defence)
    strategy.local(stack.recipe(setting.training.recipe()))
    stack.stopping()
    check_compatible(strategy, defended_channel(channel, stack), stack)


def _check_task(strategy: Strategy, network: nn.Module, holders: Split) -> None:
    """Refuse a network, or images of the server's own, that the strategy could not begin with."""
    strategy.begin(
        ServerState(
            module=network,
            layout=Layout.of(network),
            shape=holders.pool.shape,
            classes=holders.pool.classes,
            sizes=tuple(map(len, holders.clients)),
            images=holders.images("auxiliary"),
            seed=0,
            number=0,
            vector=read_vector(network),
        )
    )


def check_trainable(setting: Setting, defence: str, network: nn.Module, holders: Split) -> None:
    """Refuse a defence that the network, the clients, the images or the length of the training rule out."""
    training, stack = setting.training, make_defences(defence)
    strategy, channel = STRATEGIES.make(training.strategy), CHANNELS.make(training.channel)
    sizes = [len(positions) for positions in holders.clients]
    recipe = strategy.local(stack.recipe(training.recipe()))
    plan = Plan(rounds=stack.rounds(training.rounds), fraction=training.fraction)
    if stack.channel() is not None and plan.participants(len(sizes)) < 2:
        raise BadInput(
            f"{defence}: 1 client takes part in a round, and the sum of one update is that update; "
            "raise training.fraction or data.clients, or leave the defence out"
        )
    if stack.stopping() is not None and not len(holders.auxiliary):
        raise BadInput(f"{defence} looks at images that nobody trains on; set data.auxiliary above 0")
    stack.check(network, recipe)
    carried = defended_channel(channel, stack)
    settled = stack.settled(conditions_of(strategy, carried, recipe, sizes, plan))
    check_uncut(carried, settled, plan.participants(len(sizes)))


def fingerprint(*tensors: Tensor) -> str:
    """A short digest of the tensors' bytes."""
    digest = hashlib.blake2b(digest_size=8)
    for tensor in tensors:
        digest.update(tensor.contiguous().numpy().data)
    return digest.hexdigest()
