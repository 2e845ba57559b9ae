"""What the numbers of an update say of themselves: its kind, its learning rate, and how many images it held.

With the shares n_c / N of the classes the bias of the last layer moves by  -rate A n / N,  where A follows
from the weights before and from quotients of the update (`attacks/labels/counts.py`), so neither from its
scale nor from its sign. Whole counts n that explain what was seen then tell a gradient (rate 1, and the other
sign) from a delta, and how large the rate was.
"""

from collections.abc import Iterable
from dataclasses import dataclass, replace

import numpy as np
from torch import Tensor

from glasshouse.access import Protocol
from glasshouse.attacks.labels.counts import (
    EXPLAINED,
    WELL_CONDITIONED,
    label_equations,
    label_shares,
    unexplained,
)
from glasshouse.attacks.labels.head import find_head
from glasshouse.auditing.inspecting.mode import training_mode
from glasshouse.auditing.inspecting.recorded import Kind, Recorded
from glasshouse.auditing.inspecting.samples import RankCount, count_by_rank
from glasshouse.errors import BadInput, CannotRun
from glasshouse.learning.recipe import Recipe
from glasshouse.measures.labels import whole_counts

CLOSE = EXPLAINED
"""Whole counts explain the last layer where they leave less than this share of its change unexplained."""

CONDITIONED = 1000.0
"""Up to this condition number whole counts of a known number of images are tried on the last layer."""

MOST_GUESSED = 16
"""Beyond so many images whole counts fit nearly everything, and say nothing of their number."""

UNIT = 2.0**10
"""The learning rate that a gradient is given, as if it came from weights.

It is exact in binary, and so large that attacks which reckon with the rounding of weights see next to none: a
gradient is rounded by its own size.
"""


@dataclass(frozen=True)
class Told:
    """What the user says of an update: null, or "auto", where its numbers shall say it."""

    kind: str = "auto"
    samples: int | None = None
    lr: float | None = None
    epochs: int | None = None
    batch_size: int | None = None
    mode: str = "auto"


@dataclass(frozen=True, eq=False)
class Fit:
    """Whole label `counts`, shape (classes,), at a `rate`; `left` is the share of the change unexplained."""

    counts: np.ndarray
    rate: float
    left: float


@dataclass(frozen=True, eq=False)
class Reading:
    """An update as a change of the weights, shape (P,), by a recipe on so many samples.

    `counted` says that their number is known, `scaled` that the learning rate is. `words` say how.
    """

    kind: Kind
    delta: Tensor
    recipe: Recipe
    samples: int
    counted: bool
    scaled: bool
    fit: Fit | None
    words: tuple[str, ...]


def read_update(
    recorded: Recorded, protocol: Protocol, kinds: tuple[Kind, ...], told: Told, why: str
) -> Reading:
    """The reading of the likeliest of the `kinds`; `why` says how these are known."""
    readings = [_read_as(recorded, protocol, kind, told) for kind in kinds]
    if len(readings) == 1:
        return _with_words(readings[0], f"It is read as {_NAMES[kinds[0]]}: {why}.")
    gradient, delta = readings
    lefts = [reading.fit.left if reading.fit is not None else np.inf for reading in readings]
    if min(lefts) == np.inf:
        chosen = delta if told.lr is not None else gradient
        how = "a learning rate is given" if told.lr is not None else "its numbers do not tell it from a delta"
    elif lefts[0] < CLOSE or lefts[0] <= lefts[1]:
        chosen, how = gradient, "the last layer moved by the sign and size of one"
    else:
        chosen, how = delta, "the last layer moved by the sign of one"
    if min(lefts) >= CLOSE:
        how += ", but that is not sure; say it with --kind"
    return _with_words(chosen, f"It is read as {_NAMES[chosen.kind]}: {how}.")


def counted_images(count: int) -> str:
    """So many images, in words.

    >>> counted_images(1), counted_images(2)
    ('1 image', '2 images')
    """
    return "1 image" if count == 1 else f"{count} images"


def _read_as(recorded: Recorded, protocol: Protocol, kind: Kind, told: Told) -> Reading:
    change = recorded.change(kind)
    if not change[: recorded.layout.trainable].any():
        raise BadInput("the update does not move the model at all; record one that does")
    recipe, words = _recipe(recorded, kind, told)
    protocol = replace(protocol, recipe=recipe)
    rounded = None if kind == "gradient" else recorded.sent
    steps = recipe.epochs if recipe.batch_size == 0 else 2
    rank = count_by_rank(protocol, recorded.sent, change, recorded.precision, rounded, steps)
    head = _head(protocol, recorded, change, steps)
    samples = told.samples or (rank.least if rank is not None and rank.exact else None)
    known = 1.0 if kind == "gradient" else _known_rate(recipe, told, samples)
    fit = _fit(head, samples, known)
    if told.samples is None and fit is not None and fit.left >= CLOSE and rank is not None and rank.last:
        samples = None  # in the last layer images of one class hide behind one another
    if samples is None:
        fit = _smallest_fit(head, 1 if rank is None else rank.least, known)
    counted = samples is not None
    if samples is None:
        samples = int(fit.counts.sum()) if fit is not None else rank.least if rank is not None else 1
    scaled = known is not None or (fit is not None and fit.left < CLOSE and not fit.counts.all())
    rate = (
        known
        if known is not None
        else fit.rate
        if fit is not None and scaled
        else recipe.effective_rate(samples)
    )
    words = (
        *words,
        _counted_words(told, rank, fit, samples, counted),
        *_rate_words(kind, recipe, samples, rate, known is not None, scaled),
    )
    delta, recipe = _canonical(change, kind, recipe, samples, rate)
    return Reading(kind, delta, recipe, samples, counted, scaled, fit, words)


def _recipe(recorded: Recorded, kind: Kind, told: Told) -> tuple[Recipe, tuple[str, ...]]:
    """The local training: one step on all images unless told, or counted by batch norm, otherwise."""
    mode, words = training_mode(recorded, kind, told.mode)
    if kind == "gradient":
        if (told.epochs or 1) > 1 or told.batch_size:
            raise BadInput("a gradient is one step on all images; leave --epochs and --batch-size out")
        return Recipe(batch_size=0, lr=UNIT, mode=mode), words
    epochs, batch_size = told.epochs or 1, told.batch_size or 0
    if told.epochs is None and told.batch_size is None and (recorded.steps or 1) > 1:
        epochs = recorded.steps or 1
        words += (
            f"Batch norm counted {epochs} local steps, which are read as steps on all images; "
            "--epochs and --batch-size say otherwise.",
        )
    return Recipe(epochs=epochs, batch_size=batch_size, lr=told.lr or 1.0, mode=mode), words


def _known_rate(recipe: Recipe, told: Told, samples: int | None) -> float | None:
    if told.lr is None or (samples is None and recipe.batch_size):
        return None
    return recipe.effective_rate(samples or 1)


@dataclass(frozen=True, eq=False)
class _HeadChange:
    """The system's left side, shape (classes + 1, classes), and how the bias `moved`, shape (classes,)."""

    equations: np.ndarray
    moved: np.ndarray

    @property
    def condition(self) -> float:
        """The condition number of the equations."""
        return float(np.linalg.cond(self.equations))


def _head(protocol: Protocol, recorded: Recorded, change: Tensor, steps: int) -> _HeadChange | None:
    """What the last layer says; null where there is none, or it determines nothing."""
    try:
        head = find_head(protocol)
    except CannotRun:
        return None
    moved = protocol.layout.named(change)[head.bias].double().numpy()
    if not moved.any():
        return None
    middle = recorded.sent + change / 2 if steps > 1 else recorded.sent
    read = _HeadChange(label_equations(protocol.layout, head, middle, change), moved)
    sound = bool(np.isfinite(read.equations).all()) and read.condition <= CONDITIONED
    return read if sound else None


def _fit(head: _HeadChange | None, samples: int | None, known: float | None) -> Fit | None:
    """The whole counts of so many images that explain the last layer best."""
    if head is None or samples is None:
        return None
    rates = _rates(head) if known is None else [known]
    fits = [_fitted(head, rate, samples, known is not None) for rate in rates]
    return min(fits, key=lambda fit: fit.left)


def _smallest_fit(head: _HeadChange | None, least: int, known: float | None) -> Fit | None:
    """The whole counts of the smallest number of images, from `least`, that explain the last layer."""
    if head is None or head.condition > WELL_CONDITIONED:
        return None
    fits = (_fit(head, samples, known) for samples in range(least, max(least, MOST_GUESSED) + 1))
    return next((fit for fit in fits if fit is not None and fit.left < CLOSE / 4), None)


def _fitted(head: _HeadChange, rate: float, samples: int, fixed: bool) -> Fit:
    """Whole counts at a rate, which is improved for these counts unless it is `fixed`."""
    counts = whole_counts(label_shares(head.equations, -head.moved / rate), samples)
    gradient = head.equations[:-1] @ (counts / samples)
    length = float(gradient @ gradient)
    if not fixed and length > 0:
        rate = max(-float(head.moved @ gradient) / length, 0.0) or rate
    return Fit(counts, rate, unexplained(head.equations, counts, -head.moved / rate))


def _rates(head: _HeadChange) -> Iterable[float]:
    """Rates around the least at which no class has a share below 0; a class that is missing has just 0."""
    right = np.append(np.zeros(len(head.moved)), 1.0)
    middle, *_ = np.linalg.lstsq(head.equations, right)
    slope, *_ = np.linalg.lstsq(head.equations, np.append(-head.moved, 0.0))
    falling = slope < 0
    if not falling.any():
        return [1.0]
    least = 1 / float((middle[falling] / -slope[falling]).clip(1e-12).min())
    return [least * factor for factor in np.geomspace(0.5, 2.0, 61).tolist()]


def _canonical(
    change: Tensor, kind: Kind, recipe: Recipe, samples: int, rate: float
) -> tuple[Tensor, Recipe]:
    """The change and the recipe that led to it."""
    if kind == "gradient":
        return change * UNIT, recipe
    return change, replace(recipe, lr=rate / recipe.total_steps(samples))


def _counted_words(told: Told, rank: RankCount | None, fit: Fit | None, samples: int, counted: bool) -> str:
    if told.samples is not None:
        return f"You say that {counted_images(samples)} are behind it."
    if rank is not None and counted:
        return (
            f"It holds {counted_images(samples)}: so many independent directions are in the change of layer "
            f"{rank.layer!r}, which would show one more (images that repeat others do not count)."
        )
    least = f"at least {rank.least}" if rank is not None else "an unknown number of"
    if fit is not None and fit.left < CLOSE / 4:
        guess = f"{samples} is the smallest number whose whole label counts fit: a guess"
        return f"It holds {least} images; {guess}."
    return f"It holds {least} images, and nothing tells how many; {samples} are assumed. --samples says it."


def _rate_words(
    kind: Kind, recipe: Recipe, samples: int, rate: float, known: bool, scaled: bool
) -> tuple[str, ...]:
    if kind == "gradient" or known:
        return ()
    if not scaled:
        return (
            "Its learning rate is not known and does not show; give --lr, so that labels can be counted.",
        )
    lr = rate / recipe.total_steps(samples)
    return (f"Its learning rate is not given; {lr:.3g} explains the last layer with whole label counts.",)


def _with_words(reading: Reading, first: str) -> Reading:
    return replace(reading, words=(first, *reading.words))


_NAMES: dict[Kind, str] = {
    "gradient": "a gradient",
    "delta": "a delta",
    "after": "the weights after training",
}
