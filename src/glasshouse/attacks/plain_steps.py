"""Whether clients' updates are sums of gradients, which all attacks that read gradients from them need."""

from glasshouse.errors import CannotRun
from glasshouse.learning.recipe import Recipe


def check_plain_steps(recipe: Recipe) -> None:
    """Raise `CannotRun` for optimisers whose updates are no sums of gradients."""
    if recipe.optimiser != "sgd":
        raise CannotRun(
            f"the clients train with {recipe.optimiser}, which rescales each entry, so their updates do not "
            "add up like gradients, as those of sgd do"
        )
