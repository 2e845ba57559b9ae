"""What an audit does, piece by piece, in the order in which it does it."""

from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from glasshouse.attacks import ATTACKS
from glasshouse.attacks.attack import DEFENDED, shadow_kinds
from glasshouse.auditing.attacking import Assignment
from glasshouse.auditing.battery import all_attacks, all_variants, attacks_on, climbs, trains_many
from glasshouse.auditing.canaries import canary_specs, place_of
from glasshouse.auditing.experiment import Experiment
from glasshouse.auditing.finished import FINISHED, attacks_on_finished
from glasshouse.auditing.foresight import planned_protocol, why_not
from glasshouse.auditing.ladder import file_of, rungs_of
from glasshouse.auditing.target import CENTRAL, Variant, federation_of, plan_of, weights_file
from glasshouse.defences import make_defences
from glasshouse.learning.engine import Engine

SHADOWS = {"shadows": "offline", "online_shadows": "online"}


@dataclass(frozen=True)
class Training:
    """Targets that are trained: one, its clients in all workers, or several together, one in each worker."""

    variants: tuple[Variant, ...]
    together: bool = False
    canaries: str = ""

    @property
    def label(self) -> str:
        """What its task is called."""
        return "training" if self.together else f"training, {self.variants[0].name}"


@dataclass(frozen=True)
class Shadowed:
    """Shadow models, "offline" or "online", that are trained under a defence."""

    kind: str
    defence: str
    label: str = "shadow models"


@dataclass(frozen=True)
class Planned:
    """One attack on one target, and the `reason` why it cannot run, where that is known."""

    variant: Variant
    assignment: Assignment
    reason: str | None = None


@dataclass(frozen=True)
class Attacking:
    """The attacks on one target, in the order in which they begin."""

    variant: Variant
    attacks: tuple[Planned, ...]

    @property
    def label(self) -> str:
        """What its task is called."""
        return f"attacks on {self.variant.name}"


@dataclass(frozen=True)
class Curvature:
    """The curvature of one target's loss, which no task shows."""

    variant: Variant
    label: str = "curvature"


@dataclass(frozen=True)
class Ladder:
    """The ladder of realism: so many rungs, on each of which an attack has so many `seconds`."""

    rungs: int
    seconds: float
    label: str = "ladder of realism"


Chore = Training | Shadowed | Attacking | Curvature | Ladder


def chores(
    experiment: Experiment,
    engine: Engine,
    folder: Path | None = None,
    *,
    finished: bool = False,
    variants: Sequence[Variant] | None = None,
    only: Collection[Assignment] | None = None,
) -> Iterator[Chore]:
    """What an audit has to do, or what is missing of it in `folder`.

    A `finished` model is attacked and not trained. Of a federation all `variants` are tried unless some are
    named, and all attacks unless `only` some of them.
    """
    setting = experiment.setting
    tried = attacks_on_finished(setting) if finished else all_attacks(setting)
    if variants is None:
        variants = [FINISHED] if finished else all_variants(setting)
    untrained = [] if finished else [variant for variant in variants if not _trained(folder, variant)]
    together = trains_many(engine, len(untrained))
    if together:
        yield Training(tuple(untrained), together=True)
    ready: set[Shadowed] = set()
    for variant in variants:
        if variant in untrained and not together:
            yield Training((variant,))
        if setting.audit.curvature and not _kept(folder, f"{variant.stem}/top-eigenvalue"):
            yield Curvature(variant)
        chosen = tried if finished else attacks_on(setting, variant, tried, only)
        attacks = [_planned(experiment, variant, a) for a in chosen if not _kept(folder, _name(variant, a))]
        shadows = dict.fromkeys(shadowed for planned in attacks for shadowed in _shadowed(planned))
        yield from (shadowed for shadowed in shadows if shadowed not in ready)
        ready |= {*shadows}
        if attacks:  # those that exchange models with clients begin first
            yield Attacking(variant, tuple(sorted(attacks, key=lambda one: not one.assignment.exchanges)))
        if variant.name == "none" and not finished:
            yield from _ladder(experiment, variant, folder)
        if not finished and variant.strategy != CENTRAL:
            yield from _canaries(experiment, variant, folder)


def _trained(folder: Path | None, variant: Variant) -> bool:
    return folder is not None and weights_file(folder, variant).exists()


def _kept(folder: Path | None, name: str) -> bool:
    return folder is not None and (folder / "work" / f"{name}.json").exists()


def _name(variant: Variant, assignment: Assignment) -> str:
    return f"{variant.stem}/{assignment.name}"


def _planned(experiment: Experiment, variant: Variant, assignment: Assignment) -> Planned:
    trained = None if variant == FINISHED else variant
    reason = why_not(experiment, assignment.spec, assignment.access, trained)
    return Planned(variant, assignment, reason)


def _shadowed(planned: Planned) -> Iterator[Shadowed]:
    """The shadow models that an attack asks for."""
    if planned.reason is not None:
        return
    for kind in shadow_kinds(ATTACKS.make(planned.assignment.spec)).values():
        plain = kind.removeprefix(DEFENDED)
        yield Shadowed(SHADOWS[plain], planned.variant.defence if kind != plain else "none")


def _ladder(experiment: Experiment, variant: Variant, folder: Path | None) -> Iterator[Ladder]:
    protocol = planned_protocol(experiment, variant)
    if climbs(experiment.setting) and protocol.channel.shows_updates:
        rungs = rungs_of(experiment, protocol.recipe)
        missing = [rung for rung in rungs if not _kept(folder, file_of(rung))]
        if missing:
            yield Ladder(len(missing), experiment.setting.audit.seconds / len(rungs))


def _canaries(experiment: Experiment, variant: Variant, folder: Path | None) -> Iterator[Chore]:
    """The trainings with canaries in them, which are kept in folders of their own."""
    setting, stack = experiment.setting, make_defences(variant.defence)
    federation = federation_of(experiment, variant, Engine(1))
    promises = stack.promises(federation.conditions(plan_of(setting, variant)))
    for spec in canary_specs(setting, promises):
        (access,) = ATTACKS.make(spec).needs
        planned = _planned(experiment, variant, Assignment(spec, access))
        below = None if folder is None else place_of(folder, spec)
        if planned.reason is None and (below is None or not weights_file(below, variant).exists()):
            yield Training((variant,), canaries=spec)
        if below is None or not _kept(below, _name(variant, planned.assignment)):
            yield Attacking(variant, (planned,))
