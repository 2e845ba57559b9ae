"""Which attacks cannot run, and why, before anything is trained.

Every reason is made by the code that gives it at run time. What only training brings, such as a model that
answers NaN, nobody knows before.
"""

from glasshouse.access import (
    Access,
    AggregateAccess,
    BlindServerAccess,
    PayloadAccess,
    Protocol,
    ReportAccess,
    ServerAccess,
    UpdateAccess,
)
from glasshouse.attacks import ATTACKS
from glasshouse.attacks.attack import DEFENDED, SHADOWS, Attack, misdeclared, shadow_kinds
from glasshouse.attacks.canaries import CanaryAttack
from glasshouse.attacks.membership.shadowed import ShadowAttack
from glasshouse.attacks.membership.signals import check_enough
from glasshouse.auditing.canaries import insert
from glasshouse.auditing.case import Case
from glasshouse.auditing.examine import question_of
from glasshouse.auditing.experiment import Experiment
from glasshouse.auditing.failures import answering_for
from glasshouse.auditing.grants import ALONE, NO_PAYLOAD, NO_REPORTS, check_is_a_sum, check_shows_updates
from glasshouse.auditing.requirements import fewest_images, held, missing
from glasshouse.auditing.shadowing import check_possible
from glasshouse.auditing.target import CENTRAL, Variant
from glasshouse.defences import make_defences
from glasshouse.errors import CannotRun, reason_of
from glasshouse.federation.channels import CHANNELS
from glasshouse.federation.conditions import Plan, defended_channel
from glasshouse.federation.strategies import STRATEGIES
from glasshouse.federation.strategies.strategy import Strategy
from glasshouse.learning.layout import Layout


def why_not(
    experiment: Experiment, spec: str, adversary: type[Access], variant: Variant | None = None
) -> str | None:
    """Why the attack `spec` cannot run as `adversary` on the target of `variant`; null where it may.

    The variant is the undefended federation unless it is named.
    """
    variant = variant or Variant(experiment.setting.training.strategy, "none")
    return reason_of(_check, experiment, spec, adversary, variant)


def planned_protocol(experiment: Experiment, variant: Variant) -> Protocol:
    """What every server will know of the training of `variant`."""
    training, pool, stack = experiment.setting.training, experiment.split.pool, make_defences(variant.defence)
    central = variant.strategy == CENTRAL
    strategy: Strategy = STRATEGIES.make("fedavg" if central else variant.strategy)
    channel = CHANNELS.make("plain" if central else training.channel)
    return Protocol(
        experiment.model,
        Layout.of(experiment.model),
        strategy.local(stack.recipe(training.recipe())),
        pool.shape,
        pool.classes,
        defended_channel(channel, stack),
        strategy,
    )


def _check(experiment: Experiment, spec: str, adversary: type[Access], variant: Variant) -> None:
    """Raise `CannotRun` in the order in which a run would: what is known, what is read, how clients train."""
    attack: Attack = ATTACKS.make(spec)
    with answering_for(attack, spec):
        fault = misdeclared(attack)
        if fault is not None:
            raise CannotRun(fault)
    if isinstance(attack, CanaryAttack):
        insert(experiment, attack, variant)
        return
    protocol = planned_protocol(experiment, variant)
    sizes = tuple(map(len, experiment.split.clients))
    _check_known(experiment, attack, protocol, variant)
    together = _check_read(adversary, protocol, sizes, experiment.setting.training.fraction)
    with answering_for(attack, spec):
        reason = attack.cannot(protocol, fewest_images(sizes, together))
    if reason is not None:
        raise CannotRun(reason)


def _check_known(experiment: Experiment, attack: Attack, protocol: Protocol, variant: Variant) -> None:
    """Raise `CannotRun` where the attack would not be given what it asks to know."""
    case = Case(
        subject=experiment.subject(variant.strategy, variant.defence),
        protocol=protocol,
        truth=experiment.truth,
        auxiliary=experiment.auxiliary,
        defence=make_defences(variant.defence),
    )
    question = question_of(case, attack, seed=0, detailed=False)
    for name in attack.knows:
        if name in SHADOWS:
            defence = variant.defence if shadow_kinds(attack)[name].startswith(DEFENDED) else "none"
            count = check_possible(experiment, "offline" if name == "shadows" else "online", defence)
            if isinstance(attack, ShadowAttack):
                check_enough(count, attack.fewest_shadows)
        elif not held(name, case, question):
            raise CannotRun(missing(name, case, attack))


def _check_read(adversary: type[Access], protocol: Protocol, sizes: tuple[int, ...], fraction: float) -> int:
    """How many clients' updates are added up at least; raises `CannotRun` where there is nothing to read."""
    cohort = Plan(fraction=fraction).participants(len(sizes))
    if adversary in (UpdateAccess, ServerAccess):
        check_shows_updates(protocol.channel)
    if adversary is BlindServerAccess:
        check_is_a_sum(len(sizes))
    if adversary is AggregateAccess:
        if cohort < 2:
            raise CannotRun(ALONE)
        return cohort
    if adversary is ReportAccess and not protocol.strategy.client_reports:
        raise CannotRun(NO_REPORTS)
    if adversary is PayloadAccess and not protocol.strategy.server_payload:
        raise CannotRun(NO_PAYLOAD)
    return 1
