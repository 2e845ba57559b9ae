"""Shadow models: trained like the target, on the adversary's data; only their answers are kept."""

import dataclasses
import hashlib
import warnings
from collections.abc import Callable, Sequence
from copy import deepcopy
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

import numpy as np
import torch
from scipy.special import log_softmax, logsumexp
from torch import Tensor, nn

from glasshouse.data.images import Images
from glasshouse.data.partitions import partition as divide
from glasshouse.data.split import Split
from glasshouse.defences import make_defences, split_defences
from glasshouse.errors import BadInput, Fault
from glasshouse.federation.channels.channel import Plain
from glasshouse.federation.federation import Federation, Plan
from glasshouse.federation.strategies import STRATEGIES
from glasshouse.learning.cpu import laid_out
from glasshouse.learning.engine import Engine
from glasshouse.learning.evaluate import predict
from glasshouse.learning.layout import write_vector
from glasshouse.learning.recipe import Recipe
from glasshouse.learning.seeds import derive
from glasshouse.learning.shared import Shared
from glasshouse.progress import Progress
from glasshouse.provenance import own_code
from glasshouse.store import is_there, read_tensors, write_tensors

NO_IMAGES = np.empty(0, dtype=np.int64)


@dataclass(frozen=True, kw_only=True)
class Training:
    """How a model is trained: in a federation of `clients`, or in one place where there is one.

    It goes on for exactly `rounds`, whatever the defences plan, and its updates are summed in the clear:
    nobody looks at a shadow's updates.
    """

    recipe: Recipe
    rounds: int = 1
    clients: int = 1
    fraction: float = 1.0
    partition: str = "iid"
    strategy: str = "fedavg"
    defences: str = "none"

    def described(self) -> str:
        """The training in words."""
        where = "in one place" if self.clients == 1 else f"as federations of {self.clients} clients"
        by = "" if self.strategy == "fedavg" else f" by {self.strategy}"
        under = "" if self.defences == "none" else f" under {self.defences}"
        epochs = make_defences(self.defences).recipe(self.recipe).epochs
        return f"{where}{by} for {self.rounds} x {epochs} epochs{under}"


def log_odds(log_probabilities: np.ndarray, y: Tensor) -> np.ndarray:
    """log p_y - log(1 - p_y) for each record, shape (N,), exact where p_y is close to 1."""
    rows = np.arange(len(y))
    others = log_probabilities.copy()
    others[rows, y.numpy()] = -np.inf
    odds: np.ndarray = log_probabilities[rows, y.numpy()] - logsumexp(others, axis=1)
    return odds


@dataclass(frozen=True, eq=False)
class ShadowSet:
    """Positions of the images that one shadow is trained on, and of those it is tested on."""

    train: np.ndarray
    test: np.ndarray


@dataclass(frozen=True, eq=False)
class Answers:
    """The answers of k models about N images: `logits` of shape (k, N, classes), float32.

    `inside` and `tested`, bool of shape (k, N), say which images are in each model's training and test set.
    """

    images: Images
    logits: np.ndarray
    inside: np.ndarray
    tested: np.ndarray

    def log_probabilities(self, model: int) -> np.ndarray:
        """The answers of one model, double of shape (N, classes)."""
        answers: np.ndarray = log_softmax(self.logits[model].astype(np.float64), axis=1)
        return answers

    @cached_property
    def log_odds(self) -> np.ndarray:
        """The log-odds of each image's label under each model, shape (k, N)."""
        return np.stack([log_odds(self.log_probabilities(k), self.images.y) for k in range(len(self))])

    def __len__(self) -> int:
        """How many models there are."""
        return len(self.logits)

    def about(self, which: slice) -> "Answers":
        """The answers about some of the images."""
        parts = (array[:, which] for array in (self.logits, self.inside, self.tested))
        return Answers(self.images[which], *parts)


@dataclass(frozen=True, eq=False)
class Shadows:
    """The answers of shadow models about the auxiliary images and about the candidates."""

    auxiliary: Answers
    candidates: Answers
    described: str

    def __len__(self) -> int:
        """How many models there are."""
        return len(self.candidates)


@dataclass(frozen=True, eq=False)
class _Setup:
    """What all shadows of one call share; each worker receives it once."""

    model: nn.Module
    training: Training
    pool: Shared


@dataclass(frozen=True, eq=False)
class _Job:
    setup: Shared
    start: Tensor
    train: np.ndarray
    seed: int


def train_shadows(
    model: nn.Module,
    start: Callable[[int], Tensor],
    training: Training,
    pool: Images,
    sets: Sequence[ShadowSet],
    *,
    engine: Engine,
    seed: int = 0,
    cache: Path | None = None,
    progress: Progress | None = None,
) -> Answers:
    """Train a model on the images of each set, positions in `pool`, and ask each about the whole pool.

    `start` gives the first weights, shape (P,), for a seed. The models themselves are not kept: a worker
    trains one, asks it and drops it. With `cache`, a folder, answers are written there under a signature of
    everything that decides them, and a model whose answers are there is not trained again.
    """
    seeds = shadow_seeds(seed, len(sets))
    logits = np.empty((len(sets), len(pool), pool.classes), dtype=np.float32)
    files: dict[int, Path] = {}
    if cache is not None:
        own = own_code(split_defences(training.defences))
        common = hashlib.blake2b(f"{model} {dataclasses.astuple(training)} {own}".encode(), digest_size=16)
        for tensor in (pool.x, pool.y):
            common.update(tensor.contiguous().numpy().data)
        for k, (chosen, shadow_seed) in enumerate(zip(sets, seeds)):
            signature = common.copy()
            signature.update(f"{shadow_seed} {chosen.train.tolist()}".encode())
            signature.update(start(shadow_seed).contiguous().numpy().data)
            files[k] = cache / f"{signature.hexdigest()}.safetensors"
    done = {k: answers for k, file in files.items() if (answers := _kept(file)) is not None}
    missing = [k for k in range(len(sets)) if k not in done]
    for k, answers in done.items():
        logits[k] = answers
    setup = engine.share(_Setup(laid_out(deepcopy(model)), training, engine.share_images(pool)))
    jobs = (_Job(setup, start(seeds[k]), sets[k].train, seeds[k]) for k in missing)
    arriving = zip(engine.map(_train, jobs), missing)
    for answers, k in (progress or Progress(quiet=True)).track(arriving, "shadow models", len(missing)):
        logits[k] = answers
        if k in files:
            write_tensors(files[k], {"logits": torch.from_numpy(answers)})
    inside, tested = (np.zeros(logits.shape[:2], dtype=bool) for _ in range(2))
    for k, chosen in enumerate(sets):
        inside[k, chosen.train] = True
        tested[k, chosen.test] = True
    return Answers(pool, logits, inside, tested)


def _kept(file: Path) -> np.ndarray | None:
    """The answers in a file; None where there is none, or a damaged one, which is written anew."""
    if not is_there(file):
        return None
    try:
        return read_tensors(file)[0]["logits"].numpy()
    except Fault:
        warnings.warn(f"{file} is damaged; the shadow model is trained anew", stacklevel=2)
        return None


def shadow_sets(
    master: np.ndarray, members: int, count: int, rng: np.random.Generator, *, share: float = 0.9
) -> list[ShadowSet]:
    """`count` overlapping but different sets, each a random `share` of the positions `master`.

    Two thirds of each, but no more than the target's `members`, are for training and the rest for its test.
    """
    size = int(share * len(master))
    trained = min(members, size * 2 // 3)
    drawn = [rng.permutation(master)[:size] for _ in range(count)]
    return [ShadowSet(np.sort(chosen[:trained]), np.sort(chosen[trained:])) for chosen in drawn]


def online_sets(candidates: np.ndarray, count: int, rng: np.random.Generator) -> list[ShadowSet]:
    """Sets such that each candidate is in the training set of half of the shadows: pairs of complements."""
    sets: list[ShadowSet] = []
    while len(sets) < count:
        first, second = (np.sort(half) for half in np.array_split(rng.permutation(candidates), 2))
        sets += [ShadowSet(first, second), ShadowSet(second, first)]
    return sets[:count]


def shadow_seeds(seed: int, count: int) -> list[int]:
    """The seeds of `count` shadows."""
    return [derive(seed, "shadow", number) for number in range(count)]


def affordable(training: Training, pool: Images, sets: Sequence[ShadowSet], seed: int) -> Training:
    """The same training, with the number of clients halved until every set can be divided among them."""
    while training.clients > 1:
        try:
            for chosen, shadow_seed in zip(sets, shadow_seeds(seed, len(sets))):
                _divided(training, pool, chosen.train, shadow_seed)
        except BadInput:
            training = dataclasses.replace(training, clients=training.clients // 2)
        else:
            break
    return training if training.clients > 1 else dataclasses.replace(training, partition="iid", fraction=1.0)


def _divided(training: Training, pool: Images, train: np.ndarray, seed: int) -> list[np.ndarray]:
    """The positions in `train` of the images of each client of a shadow."""
    return divide(training.partition, pool.y.numpy()[train], training.clients, derive(seed, "clients"))


def _train(job: _Job) -> np.ndarray:
    """Train one shadow and return its answers about the pool, shape (N, classes)."""
    setup: _Setup = job.setup.get()
    pool: Images = setup.pool.get()
    training = setup.training
    parts = _divided(training, pool, job.train, job.seed)
    split = Split(pool, tuple(job.train[part] for part in parts), NO_IMAGES, NO_IMAGES, NO_IMAGES)
    federation = Federation(
        setup.model,
        split,
        training.recipe,
        engine=Engine(1),
        strategy=STRATEGIES.make(training.strategy),
        defences=make_defences(training.defences),
        seed=job.seed,
    )
    plan = Plan(rounds=training.rounds, fraction=training.fraction)
    history = federation.through(Plain()).run(job.start, plan)
    write_vector(setup.model, history.vector)
    answers: np.ndarray = predict(setup.model, pool.x).numpy()
    return answers
