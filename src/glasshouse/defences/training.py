"""Training otherwise, so that the model or the updates give less away."""

import dataclasses
from dataclasses import dataclass

from glasshouse.defences.defence import Defence, Stopping
from glasshouse.errors import BadInput
from glasshouse.learning.recipe import Recipe
from glasshouse.options import check_number, check_share, check_whole

MOST = 1_000_000
"""The largest factor, and the most rounds of patience: beyond any experiment."""


@dataclass(frozen=True, kw_only=True)
class LargerBatches(Defence):
    """Trains on batches `factor` times as large, so that each gradient is the mean of more images.

    Epochs and learning rate stay, so there are fewer steps; all data at once (batch_size = 0) stays that.
    """

    factor: int = 2

    def __post_init__(self) -> None:
        check_whole("larger-batches", "factor", self.factor, 2, MOST)

    def recipe(self, recipe: Recipe) -> Recipe:
        return dataclasses.replace(recipe, batch_size=self.factor * recipe.batch_size)


@dataclass(frozen=True, kw_only=True)
class MoreLocalSteps(Defence):
    """Trains `factor` times as many epochs in each round, for as many times fewer rounds, rounded up.

    The work of the clients stays about the same; each update mixes more steps, and fewer of them are sent.
    """

    factor: int = 2

    def __post_init__(self) -> None:
        check_whole("more-local-steps", "factor", self.factor, 2, MOST)

    def recipe(self, recipe: Recipe) -> Recipe:
        """So many more epochs, and a schedule over the rounds over as many fewer of them."""
        epochs, planned = self.factor * recipe.epochs, self.rounds(recipe.rounds)
        if not planned:
            return dataclasses.replace(recipe, epochs=epochs)
        size = recipe.step_size
        return dataclasses.replace(
            recipe,
            epochs=epochs,
            rounds=planned,
            warmup=min(self.rounds(recipe.warmup), planned - 1),
            step_size=None if size is None else self.rounds(size),
        )

    def rounds(self, rounds: int) -> int:
        return -(-rounds // self.factor)


@dataclass(frozen=True, kw_only=True)
class EarlyStopping(Defence):
    """Stops once `patience` rounds have not raised the accuracy on `images` of the server's own images.

    These are drawn from the auxiliary images: no client trains on them, and no attack or test is judged on
    them. The model is that of the last round. The planned rounds remain the most there may be.
    """

    patience: int = 5
    images: int = 500

    def __post_init__(self) -> None:
        check_whole("early-stopping", "patience", self.patience, 1, MOST)
        check_whole("early-stopping", "images", self.images, 1)

    def stopping(self) -> Stopping:
        return Stopping(self.patience, self.images)


@dataclass(frozen=True, kw_only=True)
class MixUp(Defence):
    """Trains on weighted means of two images and of their labels, the weight drawn from Beta(alpha, alpha).

    One weight is drawn for each batch, as the authors do (Zhang et al. 2018).
    """

    alpha: float = 1.0

    def __post_init__(self) -> None:
        check_number("mix-up", "alpha", self.alpha, 0, 1e3, open_low=True)

    def recipe(self, recipe: Recipe) -> Recipe:
        if recipe.mix_up:
            raise BadInput(
                f"mix-up(alpha={self.alpha:g}): images are mixed already, by training.mix_up or another "
                "defence; leave one of them out"
            )
        return dataclasses.replace(recipe, mix_up=self.alpha)


@dataclass(frozen=True, kw_only=True)
class LabelSmoothing(Defence):
    """Spreads the share `amount` of every training target evenly over all classes."""

    amount: float = 0.3

    def __post_init__(self) -> None:
        check_share("label-smoothing", "amount", self.amount)

    def recipe(self, recipe: Recipe) -> Recipe:
        if recipe.label_smoothing:
            raise BadInput(
                f"label-smoothing(amount={self.amount:g}): labels are smoothed already, by "
                "training.label_smoothing or another defence; leave one of them out"
            )
        return dataclasses.replace(recipe, label_smoothing=self.amount)


@dataclass(frozen=True, kw_only=True)
class WeightDecay(Defence):
    """Pulls all weights towards zero: adds `amount` to the weight decay of the clients' optimiser."""

    amount: float = 1e-2

    def __post_init__(self) -> None:
        check_number("weight-decay", "amount", self.amount, 0, 1e3, open_low=True)

    def recipe(self, recipe: Recipe) -> Recipe:
        return dataclasses.replace(recipe, weight_decay=recipe.weight_decay + self.amount)
