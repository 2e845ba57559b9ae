"""Averaging with a generator: the server sends synthetic features of the classes that clients lack."""

from abc import abstractmethod
from collections.abc import Iterable
from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from glasshouse.data.images import Images
from glasshouse.errors import BadInput
from glasshouse.federation.strategies.fedavg import FedAvg
from glasshouse.federation.strategies.generator import (
    Generator,
    Teachers,
    read_moments,
    train_generator,
    write_moments,
)
from glasshouse.federation.strategies.strategy import LocalTask, Reply, ServerState, Tensors, divergence
from glasshouse.federation.updates import Delivery
from glasshouse.learning.layout import read_vector, write_vector
from glasshouse.learning.seeds import torch_rng
from glasshouse.learning.step import PLAIN, Step
from glasshouse.models.freezing import exchanged
from glasshouse.models.outputs import output_layer
from glasshouse.options import check_number, check_whole


@dataclass(frozen=True, kw_only=True)
class Recalling(FedAvg):
    """Averages as FedAvg does; clients also learn from features that a generator synthesises for each class.

    A strategy says whose last layers teach the generator. It turns `noise` uniform numbers and a label,
    through one layer of `hidden` neurons, into inputs of the networks' last layer. In each round the server
    fits it for `generator_steps` batches of `batch_size` (Adam, rate `generator_lr`, `weight_decay`, its
    moments kept from round to round), so that its teachers recognise the label; `diversity` is the weight of
    a loss that grows as the features become alike.

    Clients add `weight` times the cross-entropy of their last layer on `batch_size` synthetic features of
    classes drawn uniformly, and `weight` times the divergence of their answers to a batch from those to
    synthetic features of its labels, KL(synthetic || real), whose gradient goes through the real answers
    alone, as in the code of FedGEN's authors. In the first round they add nothing. `weight` and
    `generator_lr` are multiplied by `decay` every round; with `weight` 0 this is FedAvg.
    """

    noise: int = 32
    hidden: int = 256
    generator_steps: int = 50
    batch_size: int = 32
    generator_lr: float = 3e-4
    weight_decay: float = 1e-2
    decay: float = 0.98
    weight: float = 10.0
    diversity: float = 1.0

    def __post_init__(self) -> None:
        name = type(self).__name__.lower()
        for option, least in (("noise", 1), ("hidden", 1), ("generator_steps", 1), ("batch_size", 2)):
            check_whole(name, option, getattr(self, option), least)
        check_number(name, "generator_lr", self.generator_lr, 0, open_low=True)
        check_number(name, "decay", self.decay, 0, 1, open_low=True)
        for option in ("weight_decay", "weight", "diversity"):
            check_number(name, option, getattr(self, option), 0)

    def begin(self, server: ServerState) -> Tensors:
        last = output_layer(server.module, server.shape)
        if not any(last.weight is parameter for parameter in exchanged(server.module).values()):
            raise BadInput(
                f"{type(self).__name__.lower()} reads the last layer in what clients send, and it is frozen; "
                "train it (model.train), or take another strategy"
            )
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(server.derive("generator"))
            generator = self._generator(last, server.classes)
        size = sum(parameter.numel() for parameter in generator.parameters())
        moments = {"first": torch.zeros(size), "second": torch.zeros(size), "steps": torch.zeros(())}
        return {"generator": read_vector(generator), **moments}

    def brief(self, server: ServerState) -> Tensors:
        if server.number == 0 or not self.weight:
            return {}
        weight = self.weight * self.decay**server.number
        return {"generator": server.memory["generator"], "weight": torch.tensor(weight)}

    def train(self, task: LocalTask) -> Reply:
        return Reply(task.fit(self._recalling(task) if task.payload else PLAIN))

    def combine(self, server: ServerState, delivery: Delivery) -> tuple[Tensor, Tensors]:
        vector, memory = super().combine(server, delivery)
        last = output_layer(server.module, server.shape)
        generator = self._generator(last, server.classes)
        write_vector(generator, memory["generator"])
        lr, parameters = self.generator_lr * self.decay**server.number, generator.parameters()
        optimiser = torch.optim.Adam(parameters, lr, weight_decay=self.weight_decay, fused=True)
        write_moments(optimiser, memory["first"], memory["second"], memory["steps"])
        train_generator(
            generator,
            self.teachers(server, delivery, last),
            optimiser,
            steps=self.generator_steps,
            batch_size=self.batch_size,
            diversity=self.diversity,
            rng=server.torch_rng("generator"),
        )
        return vector, {"generator": read_vector(generator), **read_moments(optimiser)}

    @abstractmethod
    def teachers(self, server: ServerState, delivery: Delivery, last: nn.Linear) -> Teachers:
        """What the generator learns from after a round; `last` is the last layer of the server's module."""

    def _generator(self, last: nn.Linear, classes: int) -> Generator:
        return Generator(self.noise, classes, self.hidden, last.in_features)

    def _recalling(self, task: LocalTask) -> Step:
        last = output_layer(task.module, task.images.shape)
        generator = self._generator(last, task.images.classes).eval()
        write_vector(generator, task.payload["generator"])
        rng = torch_rng(task.seed, "generator")
        return Recall(last, generator, self.batch_size, task.payload["weight"], rng)


@dataclass(frozen=True, kw_only=True)
class FedGEN(Recalling):
    """Averages as FedAvg does; clients also learn from features that a generator synthesises for each class.

    As in Zhu et al. (2021) every client reports how many images of each class it has, and the generator
    learns from the last layers of the round's clients, each weighted by its share of a label's images.
    """

    needs_updates = True
    client_reports = ("how many images of each class it has",)
    server_payload = ("a generator of features for each class, made from the clients' last layers",)

    def begin(self, server: ServerState) -> Tensors:
        counts = torch.zeros(len(server.sizes), server.classes, dtype=torch.int64)
        return {**super().begin(server), "labels": counts}

    def report(self, module: nn.Module, images: Images) -> Tensors:
        return {"labels": images.label_counts()}

    def combine(self, server: ServerState, delivery: Delivery) -> tuple[Tensor, Tensors]:
        vector, memory = super().combine(server, delivery)
        return vector, {**memory, "labels": _label_counts(server, delivery)}

    def teachers(self, server: ServerState, delivery: Delivery, last: nn.Linear) -> Teachers:
        assert delivery.updates is not None
        arrived = [update.client for update in delivery.updates]
        states = (server.vector + update.delta for update in delivery.updates)
        return Teachers(*last_layers(server, states, last), _label_counts(server, delivery)[arrived])


@dataclass(frozen=True, kw_only=True)
class FedRecall(Recalling):
    """Averages as FedAvg does; clients also learn from features synthesised from the global model alone.

    As in FedGEN a generator makes them, but its only teacher is the last layer of the average, with the same
    weight for all classes: no client reports anything, and the server needs only the sum of the updates. That
    is the principle of Fed-FSNet (Guo et al. 2022), from whose samples clients learn little.
    """

    server_payload = ("a generator of features for each class, made from the global model's last layer",)

    def teachers(self, server: ServerState, delivery: Delivery, last: nn.Linear) -> Teachers:
        average = server.vector + delivery.mean
        return Teachers(*last_layers(server, [average], last), torch.ones(1, server.classes))


@dataclass(frozen=True, eq=False)
class Recall(Step):
    """What a client learns from the `generator`, which stays as it is and in eval mode.

    `last` is the last layer of the model being trained. Each batch gets synthetic features of its labels and
    `batch_size` more, drawn with `rng`.
    """

    last: nn.Linear
    generator: Generator
    batch_size: int
    weight: Tensor
    rng: torch.Generator

    def loss(self, model: nn.Module, logits: Tensor, y: Tensor) -> Tensor:
        drawn = torch.randint(self.generator.classes, (self.batch_size,), generator=self.rng)
        labels = torch.cat([y, drawn])
        with torch.no_grad():
            latent = self.generator(self.generator.draw(len(labels), self.rng), labels)
        return self.weight * recall_loss(logits, self.last(latent), drawn)


def recall_loss(real: Tensor, synthetic: Tensor, drawn: Tensor) -> Tensor:
    """Both terms that clients add, for logits of a batch, (N, classes), and of features, (N + M, classes).

    The first N features are of the batch's labels, the others of the labels `drawn`, shape (M,).
    """
    same, others = synthetic.split([len(real), len(drawn)])
    return F.cross_entropy(others, drawn) + divergence(same.detach().softmax(1), real)


def last_layers(server: ServerState, states: Iterable[Tensor], last: nn.Linear) -> tuple[Tensor, Tensor]:
    """The last layers of K models with the `states`, each of shape (P,).

    Weights have the shape (K, classes, width), biases (K, classes). `last` is the last layer of the server's
    module.
    """
    names = {id(parameter): name for name, parameter in server.module.named_parameters()}
    named = [server.layout.named(state) for state in states]
    weight = torch.stack([state[names[id(last.weight)]] for state in named])
    if last.bias is None:
        return weight, weight.new_zeros(weight.shape[:2])
    return weight, torch.stack([state[names[id(last.bias)]] for state in named])


def _label_counts(server: ServerState, delivery: Delivery) -> Tensor:
    """How many images of each class each client has reported, (clients, classes); 0 before it reports."""
    counts = server.memory["labels"].clone()
    for client, report in delivery.reports.items():
        counts[client] = report["labels"]
    return counts
