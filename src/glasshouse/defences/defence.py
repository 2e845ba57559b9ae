"""What a client or a server can do to give less away."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar, TypeVar

import torch
from torch import Tensor, nn

from glasshouse.defences.promise import Conditions, Promise
from glasshouse.errors import BadInput
from glasshouse.learning.layout import Layout
from glasshouse.learning.recipe import Recipe
from glasshouse.learning.step import PLAIN, Step, Transform, compose, computes_gradient

Answer = TypeVar("Answer")


@dataclass(frozen=True)
class Stopping:
    """When to stop before the planned end: once the accuracy on `images` held-out images is no longer rising.

    That is where none of the last `patience` rounds was better than the best before them.
    """

    patience: int
    images: int


class Defence:
    """Hooks, each of which changes nothing unless overridden.

    One that `shares_noise` acts on the sum by `on_aggregate` where a trusted server sums, and by `on_masking`
    at the clients where nobody but them sees an update.
    """

    shares_noise: ClassVar[bool] = False

    def settled(self, conditions: Conditions) -> "Defence":
        """The same defence, with all that follows from the conditions of the training filled in."""
        return self

    def promises(self, conditions: Conditions) -> tuple[Promise, ...]:
        """The differential privacy that it promises under these conditions."""
        return ()

    def check(self, model: nn.Module, recipe: Recipe) -> None:
        """Refuse a network that it cannot defend when it is trained by `recipe`."""

    def poisson(self, conditions: Conditions) -> bool:
        """Whether each client must take part in a round by its own draw."""
        return False

    @property
    def divisor(self) -> int | None:
        """What the plain sum of the updates is divided by; null: it is a mean weighted by samples."""
        return None

    def recipe(self, recipe: Recipe) -> Recipe:
        """The recipe that clients train by, from that of the setting."""
        return recipe

    def rounds(self, rounds: int) -> int:
        """How many rounds are planned, from those of the setting."""
        return rounds

    def stopping(self) -> Stopping | None:
        """When the server ends the training early; null if it does not."""
        return None

    def channel(self) -> str | None:
        """The channel, as users write it, that updates take instead of the setting's; null for that one."""
        return None

    def on_receive(self, model: nn.Module, shape: tuple[int, int, int]) -> str | None:
        """Why a client refuses to train the model it received, for images of `shape`; null if it does not."""
        return None

    def on_batch(self, x: Tensor, rng: torch.Generator) -> Tensor:
        """Change a client's training batch, shape (B, C, H, W)."""
        return x

    def training(self) -> Step:
        """Change how a client trains on a batch; unless overridden, by `on_batch` alone."""
        return PLAIN if type(self).on_batch is Defence.on_batch else Transform(self.on_batch)

    def on_update(self, delta: Tensor, layout: Layout, rng: torch.Generator) -> Tensor:
        """Change what a client sends, shape (P,)."""
        return delta

    def on_masking(self, delta: Tensor, layout: Layout, rng: torch.Generator, shares: int) -> Tensor:
        """Add to an update, shape (P,), this client's share of a noise that `shares` clients make."""
        return delta

    def on_aggregate(self, mean: Tensor, layout: Layout, rng: torch.Generator) -> Tensor:
        """Change the mean of the updates before the server uses it, shape (P,)."""
        return mean

    def largest_masked(self, shares: int) -> float:
        """The largest entry of an update that is to be masked, if its noise is counted on; 0: none is."""
        return 0.0

    def canary_length(self, layout: Layout) -> float | None:
        """The length (L2) of an update that uses all that this defence lets a client add; null: no bound."""
        return None


class Stack(Defence):
    """Several defences, applied in order."""

    def __init__(self, defences: Sequence[Defence], spec: str | None = None) -> None:
        self.defences = tuple(defences)
        self._spec = spec
        if sum(defence.shares_noise for defence in self.defences) > 1:
            raise BadInput(
                f"{self}: more than one defence adds noise to the sum of the updates, and each accounts for "
                "its own alone; leave the others out"
            )

    def recipe(self, recipe: Recipe) -> Recipe:
        for defence in self.defences:
            recipe = defence.recipe(recipe)
        if recipe.mix_up and computes_gradient(self.training()):
            raise BadInput(
                f"{self}: mix-up leaves no image a gradient of its own, which another defence computes; "
                "leave one of them out"
            )
        return recipe

    def rounds(self, rounds: int) -> int:
        for defence in self.defences:
            rounds = defence.rounds(rounds)
        return rounds

    def stopping(self) -> Stopping | None:
        return self._only("ends the training early", [defence.stopping() for defence in self.defences])

    def channel(self) -> str | None:
        return self._only("chooses the channel", [defence.channel() for defence in self.defences])

    def _only(self, what: str, answers: Sequence[Answer | None]) -> Answer | None:
        given = [answer for answer in answers if answer is not None]
        if len(given) > 1:
            raise BadInput(f"{self}: more than one defence {what}, which only one can; leave the others out")
        return given[0] if given else None

    def on_receive(self, model: nn.Module, shape: tuple[int, int, int]) -> str | None:
        reasons = (defence.on_receive(model, shape) for defence in self.defences)
        return next((reason for reason in reasons if reason is not None), None)

    def training(self) -> Step:
        return compose(*(defence.training() for defence in self.defences))

    def on_update(self, delta: Tensor, layout: Layout, rng: torch.Generator) -> Tensor:
        """As each does; one that hides updates in the noise of their sum bounds their length last."""
        for defence in sorted(self.defences, key=lambda defence: defence.shares_noise):
            delta = defence.on_update(delta, layout, rng)
        return delta

    def on_masking(self, delta: Tensor, layout: Layout, rng: torch.Generator, shares: int) -> Tensor:
        for defence in self.defences:
            delta = defence.on_masking(delta, layout, rng, shares)
        return delta

    def on_aggregate(
        self, mean: Tensor, layout: Layout, rng: torch.Generator, *, masked: bool = False
    ) -> Tensor:
        """As each does; where the updates were `masked`, what clients added shares of is there already."""
        for defence in self.defences:
            if not (masked and defence.shares_noise):
                mean = defence.on_aggregate(mean, layout, rng)
        return mean

    def largest_masked(self, shares: int) -> float:
        return max((defence.largest_masked(shares) for defence in self.defences), default=0.0)

    def canary_length(self, layout: Layout) -> float | None:
        lengths = [defence.canary_length(layout) for defence in self.defences]
        return min((length for length in lengths if length is not None), default=None)

    def settled(self, conditions: Conditions) -> "Stack":
        settled = tuple(defence.settled(conditions) for defence in self.defences)
        return self if settled == self.defences else Stack(settled, str(self))

    def promises(self, conditions: Conditions) -> tuple[Promise, ...]:
        return tuple(promise for defence in self.defences for promise in defence.promises(conditions))

    def check(self, model: nn.Module, recipe: Recipe) -> None:
        for defence in self.defences:
            defence.check(model, recipe)

    def poisson(self, conditions: Conditions) -> bool:
        return any(defence.poisson(conditions) for defence in self.defences)

    @property
    def divisor(self) -> int | None:
        return next((defence.divisor for defence in self.defences if defence.divisor is not None), None)

    def __str__(self) -> str:
        """As users write it, where they did."""
        return self._spec or "+".join(type(defence).__name__ for defence in self.defences) or "none"

    @property
    def vets(self) -> bool:
        """Whether any of them looks at what a client receives."""
        return any(type(defence).on_receive is not Defence.on_receive for defence in self.defences)

    @property
    def guards_sum(self) -> bool:
        """Whether any of them changes the sum of the updates."""
        return any(type(defence).on_aggregate is not Defence.on_aggregate for defence in self.defences)
