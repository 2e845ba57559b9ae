"""How fast this machine is on this model: a few real steps of its training, timed with all workers busy."""

import dataclasses
import statistics
import time
from collections.abc import Callable, Mapping, Sequence
from copy import deepcopy
from dataclasses import dataclass
from functools import partial

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from glasshouse.auditing.experiment import Experiment, first_server
from glasshouse.auditing.target import Variant, federation_of, plan_of
from glasshouse.data.images import Images
from glasshouse.data.split import Split
from glasshouse.defences.defence import Stack
from glasshouse.errors import one_line
from glasshouse.evidence.truth import NOBODY
from glasshouse.federation.channels.channel import Plain
from glasshouse.federation.federation import Federation
from glasshouse.federation.strategies.strategy import Strategy
from glasshouse.learning.engine import Engine
from glasshouse.learning.evaluate import predict
from glasshouse.learning.recipe import Recipe
from glasshouse.learning.shared import Shared

BUDGET, PATIENCE = 0.8, 2.5
"""Seconds of a core, and on the clock, of measuring after which no other training is timed."""

LONG_ENOUGH = 0.05
"""Seconds of a core that are timed at least."""

MOST_HELD, MOST_AUXILIARY = 640, 1000
"""As many images of a client, and of the server, take part."""

ASKED = (32, 250)
"""Images on which passes are timed: a few, then many if those took hardly any time."""

LONGEST = 300
"""Characters of a reason."""

REFERENCE = 0.019
"""Seconds that the machine on which costs were measured takes for the work of `_fixed`."""


@dataclass(frozen=True)
class Rate:
    """Seconds of a core for a step of training, for a client's part of a round besides, and the server's."""

    step: float
    client: float = 0.0
    server: float = 0.0


@dataclass(frozen=True)
class Pace:
    """Seconds of a core on this machine, whatever else runs on it, and how much longer that makes them.

    `rates` are those of training; `ask` is one image's forward pass, `climb` its forward and backward pass
    down to the pixels, `fixed` what a second of the machine on which costs were measured is here. A second of
    a core takes `wait` seconds.
    """

    rates: Mapping[Variant, Rate]
    ask: float
    climb: float
    fixed: float = 1.0
    wait: float = 1.0

    def of(self, variant: Variant) -> Rate:
        """The rate of a training; that of the first where it was not timed."""
        return self.rates.get(variant, next(iter(self.rates.values())))


class Untimed(Exception):
    """A training that cannot be timed, and so probably not be run; says why."""


@dataclass(frozen=True, eq=False)
class _Few:
    """What all trainings share that are timed: one client with a few images."""

    model: nn.Module
    start: Tensor
    recipe: Recipe
    split: Split


@dataclass(frozen=True, eq=False)
class _Training:
    """How one of them trains, in batches of so many images."""

    variant: Variant
    strategy: Strategy
    defences: Stack
    batch: int


@dataclass(frozen=True, eq=False)
class _Job:
    few: Shared
    trainings: tuple[_Training, ...]


def measure(experiment: Experiment, variants: Sequence[Variant], engine: Engine) -> Pace:
    """Time passes of the network, and its training in each of `variants`: the first of them in every worker.

    Nothing is kept, and no random number is drawn that anybody else would have drawn. Raises `Untimed` where
    the first of them fails.
    """
    few = engine.share(_few(experiment))
    first, *others = (_training(experiment, variant) for variant in variants)
    jobs = [_Job(few, (first, *others[number :: engine.workers])) for number in range(engine.workers)]
    measured = list(engine.map(_measure, jobs))
    few.remove()
    paces = [pace for pace in measured if isinstance(pace, Pace)]
    if len(paces) < len(measured):
        raise Untimed(next(reason for reason in measured if isinstance(reason, str)))
    rates = {variant: rate for pace in paces for variant, rate in pace.rates.items()}
    rates[first.variant] = Rate(*_middle([dataclasses.astuple(pace.rates[first.variant]) for pace in paces]))
    ordered = {variant: rates[variant] for variant in variants if variant in rates}
    return Pace(ordered, *_middle([(pace.ask, pace.climb, pace.fixed, pace.wait) for pace in paces]))


def _middle(measured: Sequence[tuple[float, ...]]) -> list[float]:
    """The median of each number."""
    return [statistics.median(values) for values in zip(*measured)]


def _few(experiment: Experiment) -> _Few:
    """The first images of the largest client, and of those that are nobody's."""
    split = experiment.split
    held = max(split.clients, key=len)[:MOST_HELD]
    pool = split.pool[np.concatenate([held, split.auxiliary[:MOST_AUXILIARY]])]
    place = np.arange(len(pool))
    cut = Split(pool, (place[: len(held)],), NOBODY, place[len(held) :], NOBODY)
    return _Few(experiment.model, experiment.start, experiment.setting.training.recipe(), cut)


def _training(experiment: Experiment, variant: Variant) -> _Training:
    federation = federation_of(experiment, variant, Engine(1))
    federation = federation.settled(plan_of(experiment.setting, variant))
    batch = federation.recipe.batch(max(federation.sizes))
    return _Training(variant, federation.strategy, federation.defences, batch)


def _measure(job: _Job) -> Pace | str:
    began, worked = time.perf_counter(), time.process_time()
    few: _Few = job.few.get()
    rates: dict[Variant, Rate] = {}
    with torch.random.fork_rng(devices=[]):
        for training in job.trainings:
            if not rates or (_since(began) < PATIENCE and time.process_time() - worked < BUDGET):
                try:
                    rates[training.variant] = _rate(few, training)
                except Exception as error:  # of a user's own code, which training runs into again
                    if not rates:
                        return _reason(error)
        try:
            ask, climb = _passes(few)
        except Exception as error:  # of a user's own network, which attacks run into again
            return _reason(error)
        fixed = _fixed()
    wait = _since(began) / max(1e-6, time.process_time() - worked)
    return Pace(rates, ask, climb, fixed, max(1.0, wait))


def _reason(error: Exception) -> str:
    return one_line(str(error), LONGEST) or type(error).__name__


def _since(began: float) -> float:
    return time.perf_counter() - began


def _rate(few: _Few, training: _Training) -> Rate:
    """From the training of a client with one batch, for more epochs as long as they take hardly any time."""
    _, _, server = _one_round(few, training, 1, combined=True)  # the first steps of a process take longer
    single, fewest, _ = _one_round(few, training, 1)
    epochs, taken, steps = 1, single, fewest
    while taken < LONG_ENOUGH and (epochs == 1 or steps > fewest):  # some strategies take one step at most
        epochs *= 4
        taken, steps, _ = _one_round(few, training, epochs)
    a_step = single / fewest if steps == fewest else max(0.0, taken - single) / (steps - fewest)
    held = min(training.batch, len(few.split.clients[0]))
    return Rate(a_step * training.batch / held, max(0.0, single - fewest * a_step), server)


def _one_round(
    few: _Few, training: _Training, epochs: int, *, combined: bool = False
) -> tuple[float, int, float]:
    """The seconds that the client takes, for how many steps, and the server, where it combines them."""
    split = dataclasses.replace(few.split, clients=(few.split.clients[0][: training.batch],))
    recipe = dataclasses.replace(few.recipe, epochs=epochs)
    strategy, defences = training.strategy, training.defences
    federation = Federation(
        few.model, split, recipe, engine=Engine(1), strategy=strategy, defences=defences
    ).through(Plain())
    server = first_server(deepcopy(few.model), split)
    server = dataclasses.replace(server, memory=strategy.begin(server))
    began = time.process_time()
    delivery = federation.exchange(few.start, [0], 0, payload=strategy.brief(server)).delivery
    trained = time.process_time()
    if combined:
        strategy.combine(server, delivery)
    steps = federation.recipe.total_steps(federation.sizes[0])
    return trained - began, steps, time.process_time() - trained


def _passes(few: _Few) -> tuple[float, float]:
    """The seconds of an image's forward pass, and of one forward and back to the pixels."""
    model = deepcopy(few.model).eval()

    def ask(images: Images) -> None:
        predict(model, images.x)

    def climb(images: Images) -> None:
        x = images.x.clone().requires_grad_()
        loss = F.cross_entropy(model(x), images.y)
        if loss.requires_grad:
            torch.autograd.grad(loss, x, allow_unused=True)  # a network may cut its images off

    asked, climbed = (_an_image(work, few.split.pool) for work in (ask, climb))
    return asked, climbed


def _an_image(work: Callable[[Images], None], pool: Images) -> float:
    """The seconds of one of many images, or of one of a few where they take long."""
    seconds = 0.0
    for count in ASKED:
        images = pool[:count]
        taken = _timed(partial(work, images))
        seconds = taken / len(images)
        if taken > LONG_ENOUGH / 5:
            break
    return seconds


def _fixed() -> float:
    """What a second of arithmetic, sorting and plain Python of the machine of `REFERENCE` takes here."""
    x = torch.linspace(0, 1, 160_000).view(400, 400)

    def work() -> None:
        for _ in range(10):
            (x @ x).relu_().sum()
        torch.linspace(1, 0, 100_000).sort()
        sum(number * number for number in range(50_000))

    return _timed(work) / REFERENCE


def _timed(work: Callable[[], object]) -> float:
    """The seconds of a core that a piece of work takes when it is done once more."""
    work()
    began = time.process_time()
    work()
    return time.process_time() - began
