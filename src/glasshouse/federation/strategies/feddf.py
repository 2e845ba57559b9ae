"""FedDF (Lin et al. 2020): averaging, then distilling the ensemble of the clients' models."""

from collections.abc import Iterable
from copy import deepcopy
from dataclasses import dataclass
from itertools import islice

import numpy as np
import torch
from torch import Tensor, nn

from glasshouse.data.images import Images
from glasshouse.errors import BadInput
from glasshouse.federation.strategies.fedavg import FedAvg
from glasshouse.federation.strategies.strategy import ServerState, Tensors, divergence
from glasshouse.federation.updates import Delivery
from glasshouse.learning.cpu import channels_last
from glasshouse.learning.evaluate import accuracy, predict
from glasshouse.learning.fit import batches
from glasshouse.learning.layout import read_vector, write_vector
from glasshouse.learning.recipe import Recipe
from glasshouse.learning.seeds import numpy_rng
from glasshouse.options import check_number, check_whole

CHECKED_EVERY = 100
"""Steps from one validation of the student to the next, as in the authors' code."""

STEEPEST = 5.0
"""The norm at which the authors' code clips the student's gradient."""


@dataclass(frozen=True, kw_only=True)
class FedDF(FedAvg):
    """Averages as FedAvg does, and then distils the clients' models into their average.

    Unlike FedAvg it needs images at the server: a share `validation` of them labelled, to validate on, and
    the others unlabelled, to distil on. The average learns, on batches of `batch_size` images, to answer as
    the softmax of the mean of the clients' logits (Adam, rate `lr` annealed by a cosine over `steps`). Every
    100 steps its accuracy on the labelled images is measured. The best student, which may be the average
    itself, is the next model; `patience` steps without a better one end the round. With `steps` 0 this is
    FedAvg.

    As in the authors' code, teachers are in eval mode and the student in train mode: its batch norm goes by
    the batch, and its statistics move to those of the server's images.
    """

    steps: int = 10_000
    patience: int = 1_000
    batch_size: int = 128
    lr: float = 1e-3
    validation: float = 0.2

    needs_updates = True
    needs_images = True

    def __post_init__(self) -> None:
        check_whole("feddf", "steps", self.steps, 0)
        check_whole("feddf", "patience", self.patience, 1)
        check_whole("feddf", "batch_size", self.batch_size, 2)
        check_number("feddf", "lr", self.lr, 0, open_low=True)
        check_number("feddf", "validation", self.validation, 0, 0.9, open_low=True)

    def begin(self, server: ServerState) -> Tensors:
        """Which of the server's images validate, as positions: the same in all rounds."""
        images = len(server.images)
        labelled = max(1, int(self.validation * images))
        if images - labelled < 2:
            raise BadInput(
                f"feddf: the server has {images} images of its own, too few to distil on and to validate; "
                "set data.auxiliary above 0, better to some hundred"
            )
        drawn = np.sort(server.rng("validation").permutation(images)[:labelled])
        return {"validation": torch.from_numpy(drawn)}

    def combine(self, server: ServerState, delivery: Delivery) -> tuple[Tensor, Tensors]:
        average, memory = super().combine(server, delivery)
        if not self.steps:
            return average, memory
        assert delivery.updates is not None
        labelled = torch.zeros(len(server.images), dtype=torch.bool)
        labelled[memory["validation"]] = True
        x = server.images.x[~labelled]
        student = deepcopy(server.module)  # the server's own keeps its counters, which no checkpoint holds
        target = ensemble_answers(student, (server.vector + update.delta for update in delivery.updates), x)
        seed = server.derive("distillation")
        return self.distil(student, average, x, target, server.images[labelled], seed), memory

    def distil(
        self, student: nn.Module, start: Tensor, x: Tensor, target: Tensor, labelled: Images, seed: int
    ) -> Tensor:
        """The state, (P,), best on `labelled` among `start` and those on the way to `target` on `x`."""
        recipe = Recipe(
            epochs=self.steps, batch_size=self.batch_size, optimiser="adam", lr=self.lr, schedule="cosine"
        )
        write_vector(student, start)
        parameters = list(student.parameters())
        optimiser = recipe.make_optimiser(parameters)
        best, best_step, best_accuracy = start, 0, accuracy(student, labelled)
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(seed)  # for dropout
            drawn = islice(batches(len(x), recipe, numpy_rng(seed, "batches")), self.steps)
            for step, batch in enumerate(drawn, 1):
                loss = divergence(target[batch], student.train()(channels_last(x[batch])))
                optimiser.zero_grad()
                loss.backward()
                nn.utils.clip_grad_norm_(parameters, STEEPEST)
                for group in optimiser.param_groups:
                    group["lr"] = recipe.lr_at(step - 1, self.steps)
                optimiser.step()
                if step % CHECKED_EVERY and step < self.steps:
                    continue
                reached = accuracy(student, labelled)
                if reached > best_accuracy:
                    best, best_step, best_accuracy = read_vector(student), step, reached
                elif step - best_step >= self.patience:
                    break
        return best


def ensemble_answers(network: nn.Module, teachers: Iterable[Tensor], x: Tensor) -> Tensor:
    """The softmax of the mean of the teachers' logits for the images `x`, (N, classes).

    A teacher is a state of `network`, shape (P,); `network` is left with that of the last.
    """
    total, number = torch.zeros(()), 0
    for teacher in teachers:
        write_vector(network, teacher)
        total, number = total + predict(network, x), number + 1
    return (total / number).softmax(1)
