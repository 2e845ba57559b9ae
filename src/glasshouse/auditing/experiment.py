"""From a setting to the things it names: data divided among clients, a network and its first weights."""

import hashlib
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np
from torch import Tensor, nn

from glasshouse.attacks import ATTACKS
from glasshouse.auditing.division import division_of
from glasshouse.auditing.networks import fresh_start, make_network, news_of
from glasshouse.auditing.setting import Setting, as_toml
from glasshouse.data.images import Images
from glasshouse.data.resizing import news_of_sizes, resized, resized_set
from glasshouse.data.sources import FUNCTION, as_dataset, load
from glasshouse.data.split import Split, as_given, split
from glasshouse.defences import make_defences, split_defences
from glasshouse.errors import BadInput
from glasshouse.evidence.truth import NOBODY, Truth
from glasshouse.exhibits import Division
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
from glasshouse.models.freezing import frozen_tensors
from glasshouse.models.heads import NewHead
from glasshouse.models.loading import users_own
from glasshouse.provenance import Origin, digest_of_types, own_code, versions
from glasshouse.verdicts.limits import read_limits


@dataclass(frozen=True, eq=False)
class Experiment:
    """What an audit works on; `start` is the state its training begins with, shape (P,).

    `fresh_weights` says that the start was drawn at random, so that others can draw their own with `fresh`;
    `live` that the network was handed over as an object and not by a name. The last clients may be
    `canaries`. With a new `head` on a file's weights, that alone was drawn. `notes` say what was made of
    images and network. Where the data or a split say who is a member, parts are not `redrawn` for a seed.
    """

    setting: Setting
    split: Split
    model: nn.Module
    start: Tensor
    fresh_weights: bool
    live: bool = False
    canaries: CanaryClients | None = None
    head: NewHead | None = None
    notes: tuple[str, ...] = ()
    redrawn: bool = True

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
        candidates, holder, places, origin = held.pool[:0], NOBODY, NOBODY, NOBODY
        if len(held.nonmembers):
            of_clients = np.concatenate(held.clients)
            owner = np.repeat(np.arange(len(held.clients)), [len(positions) for positions in held.clients])
            by_position = np.argsort(of_clients)  # so that the order is the same however members are divided
            positions = np.concatenate([of_clients[by_position], held.nonmembers])
            holder = np.concatenate([owner[by_position], np.full(len(held.nonmembers), -1)])
            order = numpy_rng(seed, "candidates").permutation(len(positions))
            places = positions[order]
            candidates, holder = held.pool[places], holder[order]
            origin = held.origin(positions)[order]
        return Truth(
            held.pool,
            held.clients,
            candidates,
            holder,
            test=held.images("test"),
            by_user=self.split.whole_groups,
            names=held.names if held.owners else (),
            origin=origin,
            seed=seed,
            places=places,
            test_places=held.test,
            groups=NOBODY if held.groups is None else held.groups[places],
        )

    @cached_property
    def division(self) -> Division:
        """Who holds what of the data, to be told."""
        told = {"seed": self.setting.seed, "redrawn": self.redrawn}
        return division_of(self.split).model_copy(update=told)

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
        name = None if self.live else self.setting.model.name
        pool = self.split.pool
        return fresh_start(self.start, self.model, name, self.head, pool.shape, pool.classes, seed)

    @property
    def news(self) -> list[str]:
        """What was made of the data and the network, in words, where that needs words."""
        return [*filter(None, [self.copies]), *self.notes]

    def config(self) -> str:
        """The configuration as TOML."""
        return "".join(f"# {line}\n" for line in self.news) + as_toml(self.setting)

    @cached_property
    def origin(self) -> Origin:
        """What the numbers will come from; of first weights all but a new head, which the seed decides."""
        setting = self.setting
        named = [setting.training.strategy, setting.training.channel, setting.data.partition or "iid"]
        named += [setting.data.name] if FUNCTION.fullmatch(setting.data.name) else []
        named += [setting.model.name] if not self.live and users_own(setting.model.name) else []
        drawn = () if self.head is None else self.head.tensors
        start = Layout.of(self.model).named(self.start)
        first = [tensor for name, tensor in start.items() if name not in drawn]
        network = digest_of_types(type(layer) for layer in self.model.modules())
        defences = [part for defence in setting.audit.named_defences for part in split_defences(defence)]
        return Origin(
            code=versions() | own_code(named) | ({"the network": network} if network else {}),
            parts=own_code([*setting.audit.attacks, *defences]),
            given={
                "data": fingerprint(self.split.pool.x, self.split.pool.y),
                "first weights": fingerprint(*first, *frozen_tensors(self.model, but=drawn)),
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

    A data set is a `Split`, a `Dataset`, `Images`, or arrays: (x, y), two of those, of which the second are
    for testing, or by the names that they have in an .npz file.
    """
    check_names(setting)
    name, holders, notes = _held(setting, dataset)
    shape, classes = holders.pool.shape, holders.pool.classes
    network, head = make_network(setting.model, model, shape, classes, derive(setting.seed, "weights"))
    made = {"name": name, "clients": len(holders.clients), "partition": holders.partition}
    called = (
        setting.model if model is None else setting.model.model_copy(update={"name": type(model).__name__})
    )
    setting = setting.model_copy(update={"data": setting.data.model_copy(update=made), "model": called})
    STRATEGIES.make(setting.training.strategy).begin(first_server(network, holders))  # refuses some networks
    for defence in setting.audit.named_defences:
        check_trainable(setting, defence, network, holders)
    return Experiment(
        setting,
        holders,
        network,
        read_vector(network),
        fresh_weights=head is not None or (model is None and not setting.model.weights),
        live=model is not None,
        head=head,
        notes=(*notes, *news_of(network, head, setting.seed)),
        redrawn=not isinstance(dataset, Split) and holders.held_out != "given",
    )


def _held(setting: Setting, dataset: Any) -> tuple[str, Split, list[str]]:
    """The name of the data, who holds what as setting or data say, and what was made of the images."""
    table, side = setting.data.model_dump(exclude={"name"}), setting.model.image_size
    if isinstance(dataset, Split):
        for key, value in table.items():
            if value is not None:
                raise BadInput(f"data.{key} = {value!r}, but the split says who holds what; leave it out")
        given = as_given(dataset)
        pool = resized(given.pool, side)
        return "your data", replace(given, pool=pool), news_of_sizes(given.pool, pool)
    if dataset is None:
        name, data = setting.data.name, load(setting.data.name)
    else:
        data = as_dataset(getattr(dataset, "name", "your data"), dataset, "the data set")
        name = data.name
    fitting = resized_set(data, side)
    divided = split(fitting, **table, seed=derive(setting.seed, "split"))
    return name, divided, news_of_sizes(data.train, fitting.train)


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


def first_server(network: nn.Module, holders: Split) -> ServerState:
    """The server of a federation among `holders`, before it begins."""
    return ServerState(
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
    if plan.participants(len(sizes)) < channel.least:
        raise BadInput(
            f"the channel {training.channel!r} sums the updates of at least {channel.least} clients, and "
            f"{plan.participants(len(sizes))} of {len(sizes)} takes part in a round; raise "
            "training.fraction or the number of clients, or take the channel 'plain'"
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
