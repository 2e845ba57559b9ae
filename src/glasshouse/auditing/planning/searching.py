"""What is known beforehand of a search through all defences: its first pass, and about how much follows."""

from collections.abc import Iterator, Sequence
from pathlib import Path

from glasshouse.attacks import ATTACKS
from glasshouse.attacks.attack import declared
from glasshouse.auditing.attacking import Assignment
from glasshouse.auditing.battery import all_attacks, all_variants
from glasshouse.auditing.catalogue import singles
from glasshouse.auditing.experiment import Experiment
from glasshouse.auditing.planning.chores import Chore, chores
from glasshouse.auditing.search import FULL, usable
from glasshouse.auditing.target import CENTRAL, Variant
from glasshouse.learning.engine import Engine
from glasshouse.progress import Progress
from glasshouse.progress.time_left import Stage

COMPOSED = 4
"""As many pairs of defences are thought to be tried, of the most there may be."""


def candidates(experiment: Experiment) -> list[Variant]:
    """The defences of the first pass."""
    setting = experiment.setting
    named = [*setting.audit.named_defences, *singles(evasion=False)]
    with Progress(quiet=True) as progress:
        return [Variant(setting.training.strategy, name) for name in usable(experiment, named, progress)]


def first_pass(
    experiment: Experiment, variants: Sequence[Variant], engine: Engine, folder: Path | None
) -> Iterator[Chore]:
    """The undefended federation meets every attack, then each defence a few of them."""
    bare = [variant for variant in all_variants(experiment.setting) if variant.name == "none"]
    yield from chores(experiment, engine, folder, variants=bare)
    yield from chores(experiment, engine, folder, variants=variants, only=_few(experiment))
    central = [variant for variant in all_variants(experiment.setting) if variant.strategy == CENTRAL]
    if central:
        yield from chores(experiment, engine, folder, variants=central)


def _few(experiment: Experiment) -> list[Assignment]:
    """One attack of each adversary and family; which got furthest, nobody knows before."""
    kept: dict[tuple[str, object], Assignment] = {}
    for assignment in all_attacks(experiment.setting):
        family = declared(ATTACKS.make(assignment.spec), "family")
        if not assignment.meets_central:
            kept[assignment.access.adversary, family] = assignment
    return [*kept.values()]


def guessed(stages: Sequence[Stage], tried: int) -> Iterator[Stage]:
    """What follows a first pass over `tried` defences: pairs meet a few attacks, the best ones meet all.

    Nobody knows which these will be; they are thought to take as long as those that are known.
    """
    attacks = [stage for stage in stages if stage.kind == "attacks"]
    shadows = [stage.total for stage in stages if stage.kind == "shadow models"]
    trained = sum(stage.total for stage in stages if stage.kind == "training")
    all_attacks_take, few_take = attacks[0].total, [stage.total for stage in attacks[1:]] or [0.0]
    yield Stage("training*", (trained / (tried + 1),) * COMPOSED, "training")
    for _ in range(COMPOSED):
        yield Stage("attacks on *", (sum(few_take) / len(few_take),), "attacks")
    for _ in range(FULL):
        yield Stage("shadow models", (max(shadows, default=0.0),), "shadow models")
        yield Stage("attacks on *", (all_attacks_take,), "attacks")
