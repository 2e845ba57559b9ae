"""Fed-FSNet (Guo et al. 2022): averaging, with synthetic samples from the server against clients' drift."""

import math
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Literal, get_args

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from glasshouse.data.images import Images
from glasshouse.federation.strategies import synthesis
from glasshouse.federation.strategies.fedavg import FedAvg
from glasshouse.federation.strategies.strategy import LocalTask, Reply, ServerState, Tensors, divergence
from glasshouse.federation.updates import Delivery
from glasshouse.learning.cpu import channels_last
from glasshouse.learning.layout import read_vector, write_vector
from glasshouse.learning.statistics import unrecorded
from glasshouse.learning.step import PLAIN, Step
from glasshouse.models.outputs import features, output_layer
from glasshouse.options import check_choice, check_interval, check_number, check_whole

Mixture = Literal["varied", "sizes", "single"]
Form = Literal["samples", "features"]
Target = Literal["uniform", "class", "global"]


@dataclass(frozen=True, kw_only=True)
class FedFSNet(FedAvg):
    """Averages as FedAvg does; clients also learn to be undecided about samples that the server synthesises.

    Every client reports the mean and variance of its pixels. From these the server draws noise, on which a
    hidden model of `hidden` neurons learns for `steps` batches of `batch_size` a round (Adam, rate `lr`) to
    invert the global model. It then makes `samples` mimic samples, as many of each class, from probabilities
    that give the class a share `confidence`. Clients add `beta` times the divergence of the uniform
    distribution from their answers to these; `beta` is multiplied by `decay` every `every` rounds. In the
    first round there are no samples yet.

    The paper leaves the coefficients of the `mixture` open: "varied" draws them anew for every batch,
    "sizes" takes N_k / N, "single" one Gaussian of the mean moments. The `form` "features" sends, instead of
    samples, the inputs of the global model's last layer for them. The `target` is the paper's "uniform", the
    "class" that a sample stands for, or the answer of the "global" model.
    """

    samples: int = 60
    hidden: int = 256
    steps: int = 100
    batch_size: int = 60
    lr: float = 1e-3
    beta: float = 1.0
    decay: float = 0.1
    every: int = 10
    confidence: tuple[float, float] = (0.8, 0.99)
    mixture: Mixture = "varied"
    form: Form = "samples"
    target: Target = "uniform"

    client_reports = ("the mean and the variance of its pixels",)
    server_payload = ("samples made up by inverting the global model",)

    def __post_init__(self) -> None:
        for option in ("samples", "hidden", "steps", "batch_size", "every"):
            check_whole("fed-fsnet", option, getattr(self, option), 1)
        check_number("fed-fsnet", "lr", self.lr, 0, open_low=True)
        check_number("fed-fsnet", "beta", self.beta, 0)
        check_number("fed-fsnet", "decay", self.decay, 0, 1)
        check_interval("fed-fsnet", "confidence", self.confidence, 0, 1)
        for option, choices in (("mixture", Mixture), ("form", Form), ("target", Target)):
            check_choice("fed-fsnet", option, getattr(self, option), get_args(choices))

    def begin(self, server: ServerState) -> Tensors:
        check_whole("fed-fsnet", "samples", self.samples, server.classes)
        if self.form == "features":
            output_layer(server.module, server.shape)
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(server.derive("hidden model"))
            hidden = synthesis.hidden_model(server.shape, server.classes, self.hidden)
        return {"moments": torch.full((len(server.sizes), 2), math.nan), "hidden": read_vector(hidden)}

    def report(self, module: nn.Module, images: Images) -> Tensors:
        return {"moments": synthesis.moments(images)}

    def brief(self, server: ServerState) -> Tensors:
        beta = self.beta * self.decay ** (server.number // self.every)
        names = ("mimic", "features", "classes")
        synthetic = {name: server.memory[name] for name in names if name in server.memory}
        return synthetic | {"beta": torch.tensor(beta)} if synthetic and beta else {}

    def train(self, task: LocalTask) -> Reply:
        return Reply(task.fit(self._rectifying(task) if task.payload else PLAIN))

    def combine(self, server: ServerState, delivery: Delivery) -> tuple[Tensor, Tensors]:
        """Lines 7 to 9 of Algorithm 1; the mimic samples go out with the next round's model."""
        vector, memory = super().combine(server, delivery)
        reported = memory["moments"].clone()
        for client, report in delivery.reports.items():
            reported[client] = report["moments"]
        hidden = synthesis.hidden_model(server.shape, server.classes, self.hidden)
        write_vector(hidden, memory["hidden"])
        write_vector(server.module, vector)
        noise = self._noise(server, reported, server.torch_rng("noise"))
        synthesis.train_hidden(hidden, server.module.eval(), noise, self.steps, self.lr)
        synthetic = self.synthesise(server, hidden)
        return vector, {"moments": reported, "hidden": read_vector(hidden)} | synthetic

    @torch.no_grad()
    def synthesise(self, server: ServerState, hidden: nn.Module) -> dict[str, Tensor]:
        """Equation 9: as many mimic samples of each class, up to one, and the classes they stand for."""
        rng = server.torch_rng("synthesis")
        classes = torch.arange(self.samples) % server.classes
        low, high = self.confidence
        confidence = low + (high - low) * torch.rand(self.samples, generator=rng)
        mimic = hidden(synthesis.near_certain(classes, server.classes, confidence))
        if self.form == "samples":
            return {"mimic": mimic, "classes": classes}
        last = output_layer(server.module, server.shape)
        return {"features": features(server.module.eval(), last, channels_last(mimic)), "classes": classes}

    def _noise(self, server: ServerState, reported: Tensor, rng: torch.Generator) -> Iterator[Tensor]:
        """Batches of draws from the mixture of the clients that have reported their moments."""
        known = ~reported[:, 0].isnan()
        components, sizes = reported[known], torch.tensor(server.sizes, dtype=torch.float64)[known]
        if self.mixture == "single":
            components, sizes = components.mean(0, keepdim=True), sizes.sum().view(1)
        while True:
            shares = sizes
            if self.mixture == "varied":  # a flat Dirichlet: exponential draws, which need no normalising
                shares = torch.empty(len(sizes), dtype=torch.float64).exponential_(generator=rng)
            yield channels_last(synthesis.mixture(components, shares, self.batch_size, server.shape, rng))

    def _rectifying(self, task: LocalTask) -> Step:
        payload = task.payload
        answer: nn.Module = task.module
        if "features" in payload:
            answer, inputs = output_layer(task.module, task.images.shape), payload["features"]
        else:
            inputs = channels_last(payload["mimic"])
        target = self._target(task, answer, inputs, payload["classes"])
        return Rectifying(answer, inputs, target, payload["beta"])

    @torch.no_grad()
    def _target(self, task: LocalTask, answer: nn.Module, inputs: Tensor, classes: Tensor) -> Tensor:
        """What clients learn to answer to the mimic samples, as probabilities, shape (samples, classes)."""
        number = task.images.classes
        if self.target == "global":
            answers: Tensor = answer.eval()(inputs)
            return answers.softmax(1)
        if self.target == "class":
            return F.one_hot(classes, number).float()
        return torch.full((len(inputs), number), 1 / number)


@dataclass(frozen=True, eq=False)
class Rectifying(Step):
    """The second term of Equations 10 and 11: `beta` times the divergence of the `target` from the answers.

    `answer` is the model being trained, or its last layer, and `inputs` the mimic samples or their features;
    the target's shape is (samples, classes).
    """

    answer: nn.Module
    inputs: Tensor
    target: Tensor
    beta: Tensor

    def loss(self, model: nn.Module, logits: Tensor, y: Tensor) -> Tensor:
        with unrecorded(self.answer):
            return self.beta * divergence(self.target, self.answer(self.inputs))
