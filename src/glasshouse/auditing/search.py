"""All defences: a coarse pass over a catalogue, compositions of what did well, then every attack on the best.

1. The undefended model meets every attack. Of those that leak, the strongest of each adversary and family are
   kept for the coarse passes, and of an adversary that nothing leaks to the one that got furthest.
2. Each defence of the catalogue, at a few strengths, meets these.
3. So do compositions of two of them that keep more limits together than either does alone.
4. What keeps the limits at the least cost, or comes nearest, and is not dominated, meets every attack.

Only findings decide what is tried next, so a search does the same however many workers it has.
"""

import itertools
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from glasshouse.auditing.attacking import Assignment, assignments
from glasshouse.auditing.battery import all_variants, disclosed, run_battery, within_budget
from glasshouse.auditing.catalogue import composed, singles
from glasshouse.auditing.experiment import Experiment, check_defence, check_trainable
from glasshouse.auditing.setting import Setting
from glasshouse.auditing.target import Variant
from glasshouse.errors import BadInput, Fault
from glasshouse.exhibits import Exhibits
from glasshouse.findings import Finding
from glasshouse.learning.engine import Engine
from glasshouse.progress import Progress
from glasshouse.runfolder import RunFolder
from glasshouse.verdicts.frontier import accuracy_of, frontier
from glasshouse.verdicts.limits import Limits, about_families, read_limits
from glasshouse.verdicts.measure import Measure, federated, grouped
from glasshouse.verdicts.metrics import about_the_model
from glasshouse.verdicts.outcome import about_data, outcome, strongest
from glasshouse.verdicts.pooling import pooled
from glasshouse.verdicts.weighing import Option, weigh

COMPOSITIONS = 8
"""As many pairs are tried at most."""

FULL = 5
"""As many defences meet every attack at most; those that the setting names do so besides."""


@dataclass(frozen=True)
class Plan:
    """What a search has decided: the attacks of the coarse pass, the defences that met them, and the best."""

    cheap: frozenset[Assignment]
    coarse: tuple[str, ...]
    full: tuple[str, ...]


class Search:
    """A battery that chooses its defences itself: with the first seed, and then for all others."""

    def __init__(self) -> None:
        self.plan: Plan | None = None

    def __call__(
        self,
        experiment: Experiment,
        folder: RunFolder,
        engine: Engine,
        progress: Progress,
        *,
        detailed: bool = True,
    ) -> tuple[list[Finding], Exhibits]:
        """The findings of every defence that was tried; those of the coarse pass are of its attacks alone."""
        if self.plan is None:
            self.plan = _search(experiment, folder, engine, progress, detailed)
        strategy = experiment.setting.training.strategy
        best = [Variant(strategy, defence) for defence in self.plan.full]
        everything = list(dict.fromkeys([*all_variants(experiment.setting), *best]))
        rest = [
            variant for name in self.plan.coarse if (variant := Variant(strategy, name)) not in everything
        ]
        stages: list[tuple[list[Variant], frozenset[Assignment] | None]] = [
            (everything, None),
            (rest, self.plan.cheap),
        ]
        findings: list[Finding] = []
        exhibits = Exhibits()
        for variants, only in stages:
            found, drawn = run_battery(
                experiment, folder, engine, progress, detailed=detailed, variants=variants, only=only
            )
            findings, exhibits = findings + found, exhibits + drawn
        return findings, exhibits


def _search(
    experiment: Experiment, folder: RunFolder, engine: Engine, progress: Progress, detailed: bool
) -> Plan:
    setting = experiment.setting
    limits = read_limits(setting.audit.limits)
    strategy = setting.training.strategy
    bare = [Variant(strategy, "none")]
    findings, _ = run_battery(experiment, folder, engine, progress, detailed=detailed, variants=bare)
    cheap = cheap_attacks(setting, pooled(findings), limits)

    def coarse(defences: Sequence[str]) -> list[Finding]:
        """The findings of the cheap attacks; a defence that cannot be trained here is left out."""
        variants = [Variant(strategy, defence) for defence in defences]
        try:
            return run_battery(
                experiment, folder, engine, progress, detailed=False, variants=variants, only=cheap
            )[0]
        except Fault:
            raise
        except BadInput as reason:
            if len(defences) == 1:
                progress.say(_left_out(defences[0], reason))
                return []
        half = len(defences) // 2
        return coarse(defences[:half]) + coarse(defences[half:])

    known = usable(experiment, [*setting.audit.named_defences, *singles(evasion=_asks(limits))], progress)
    findings += coarse(known)
    findings += coarse(usable(experiment, compositions(_options(findings, limits)), progress))
    met = [name for name in dict.fromkeys(f.defence for f in findings) if name is not None and name != "none"]
    full = best_options(_options(findings, limits))
    progress.say(f"{len(met)} defences tried; every attack now meets {', '.join(full)}")
    return Plan(cheap, tuple(met), tuple(full))


def cheap_attacks(setting: Setting, measures: Sequence[Measure], limits: Limits) -> frozenset[Assignment]:
    """Of each adversary the strongest attack of each family that leaks undefended, else what got furthest.

    Evasion is among them where limits ask for it.
    """
    asks = _asks(limits)
    asked = [m for m in federated(measures) if about_data(m) or (asks and m.row.family in about_the_model())]
    kept: set[tuple[str | None, str | None]] = set()
    for mine in grouped(asked, lambda m: m.row.adversary).values():
        best = [strongest(group) for group in grouped(mine, lambda m: m.row.family).values()]
        leaking = [m for m in best if m is not None and outcome(m) == "leaks"]
        chosen: Sequence[Measure | None] = leaking or [strongest(mine)]
        kept |= {(m.row.attack, m.row.adversary) for m in chosen if m is not None}
    specs = dict.fromkeys([*within_budget(setting), *disclosed(setting)])
    return frozenset(a for a in assignments(specs) if (a.spec, a.access.adversary) in kept)


def compositions(options: Sequence[Option]) -> list[str]:
    """Pairs of defences that keep more limits together than either does alone, the least costly first.

    Pairs that keep the same limits, or cost more than may be paid, are left out: each part is one of the most
    accurate that keep what it keeps.
    """
    parts = [option for option in options if option.choice.defence != "none" and option.affordable]
    strong: dict[frozenset[str], Option] = {}
    for option in sorted(parts, key=lambda one: -accuracy_of(one.choice)):
        strong.setdefault(_kept(option), option)
    pairs = []
    for first, second in itertools.combinations(strong.values(), 2):
        together = _kept(first) | _kept(second)
        spec = composed(first.choice.defence, second.choice.defence)
        if spec is not None and together > _kept(first) and together > _kept(second):
            left = min(accuracy_of(first.choice), accuracy_of(second.choice))
            pairs.append((-len(together), -left, spec))
    return list(dict.fromkeys(spec for *_, spec in sorted(pairs)))[:COMPOSITIONS]


def best_options(options: Sequence[Option]) -> list[str]:
    """The defences worth every attack: those that keep most limits for a price that may be paid, first.

    Of equals the most accurate; one that another dominates comes after all that none does.
    """
    defended = [option for option in options if option.choice.defence != "none"]

    def merit(option: Option) -> tuple[bool, int, bool, float]:
        choice = option.choice
        return not option.affordable, len(option.open), choice.dominated_by is not None, -accuracy_of(choice)

    return [option.choice.defence for option in sorted(defended, key=merit)[:FULL]]


def _options(findings: Sequence[Finding], limits: Limits) -> list[Option]:
    return weigh(frontier(pooled(findings)), limits)


def _kept(option: Option) -> frozenset[str]:
    return frozenset(str(one.limit) for one in option.checks if one not in option.open)


def _asks(limits: Limits) -> bool:
    """Whether any limit is about fooling the model."""
    return any(limit.about and about_families(limit.about) <= about_the_model() for limit in limits.limits)


def usable(experiment: Experiment, defences: Iterable[str], progress: Progress) -> list[str]:
    """Those that go with the setting's strategy, channel and network; of the others it is said why not."""
    usable = []
    for defence in dict.fromkeys(defences):
        try:
            check_defence(experiment.setting, defence)
            check_trainable(experiment.setting, defence, experiment.model, experiment.split)
        except BadInput as reason:
            progress.say(_left_out(defence, reason))
        else:
            usable.append(defence)
    return usable


def _left_out(defence: str, reason: BadInput) -> str:
    return f"{defence} is left out of the search: {reason}"
