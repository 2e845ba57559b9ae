"""The optimisers that a recipe may name, and which of its options each takes."""

from collections.abc import Iterable
from typing import TYPE_CHECKING, Any, Literal

from glasshouse.errors import BadInput

if TYPE_CHECKING:
    import torch

    from glasshouse.learning.recipe import Recipe

Optimiser = Literal["sgd", "adam", "adamw", "rmsprop"]

OPTIONS: dict[Optimiser, tuple[str, ...]] = {
    "sgd": ("momentum", "nesterov"),
    "adam": ("betas", "eps"),
    "adamw": ("betas", "eps"),
    "rmsprop": ("momentum", "alpha", "eps"),
}
"""What an optimiser takes beside a learning rate and weight decay."""

UNSET = {"momentum": 0.0, "nesterov": False, "betas": None, "alpha": None, "eps": None}
"""The options as they are where nobody sets them; torch's own values then stand for those that are null."""


def make_optimiser(recipe: "Recipe", parameters: "Iterable[torch.Tensor]") -> "torch.optim.Optimizer":
    """The recipe's optimiser, without any memory, at the recipe's learning rate.

    All of a step is one call where torch can do that on a CPU; it has no such form of RMSprop.
    """
    import torch  # only here: names and options are checked without it

    options: dict[str, Any] = {"lr": recipe.lr, "weight_decay": recipe.weight_decay}
    for option in OPTIONS[recipe.optimiser]:
        if getattr(recipe, option) != UNSET[option]:
            options[option] = getattr(recipe, option)
    if recipe.optimiser == "rmsprop":
        return torch.optim.RMSprop(parameters, **options)
    kinds: dict[str, Any] = {"sgd": torch.optim.SGD, "adam": torch.optim.Adam, "adamw": torch.optim.AdamW}
    optimiser: torch.optim.Optimizer = kinds[recipe.optimiser](parameters, **options, fused=True)
    return optimiser


def check_options(recipe: "Recipe") -> None:
    """Refuse an option that is set and that the recipe's optimiser does not take."""
    taken = OPTIONS[recipe.optimiser]
    for option, unset in UNSET.items():
        value = getattr(recipe, option)
        if value != unset and option not in taken:
            taking = " or ".join(name for name in OPTIONS if option in OPTIONS[name])
            raise BadInput(
                f"{option} = {value!r} is no option of {recipe.optimiser}, which takes "
                f"{' and '.join(taken)}; leave it out, or take {taking}"
            )
