"""Why an attack cannot be tried on a record: what is not in it, and what nobody could judge."""

from glasshouse.access import Access, PayloadAccess, ReportAccess
from glasshouse.attacks import ATTACKS
from glasshouse.attacks.attack import SHADOWS, Attack, kind_of, misdeclared
from glasshouse.attacks.membership.shadowed import ShadowAttack
from glasshouse.attacks.membership.signals import check_enough
from glasshouse.auditing.case import Case
from glasshouse.auditing.examine import question_of
from glasshouse.auditing.failures import answering_for
from glasshouse.auditing.grants import grant
from glasshouse.auditing.recorded.case import Recorded
from glasshouse.auditing.requirements import check_protocol, held, missing
from glasshouse.auditing.shadowing import check_possible
from glasshouse.errors import CannotRun, quoted, reason_of

LABELS = "label-counts"
"""The attack that says something even where nobody can judge it."""

UNRECORDED = "a record holds no payload and no reports, only models and updates"
NO_CLIENTS = "a record answers no model: crafting servers need live clients"
NOBODY = (
    "nobody can judge it, as nobody says who held what; give --members, or look at one update with "
    "`glasshouse inspect`"
)
NO_CANDIDATES = "there is nobody to ask about; give --members and --nonmembers"
NO_OWNERS = (
    "nobody says which of the clients held which member; give the array client in the file of --members"
)
_GIVEN = {
    "auxiliary": "no auxiliary images are given; give some with --auxiliary",
    "candidates": "there is nobody to compare members with; give --nonmembers",
}
NO_MODEL = "the record has no final.safetensors, so there is no final model"
NO_ROUND = "the record has no round in which anybody took part"


def why_not(recorded: Recorded, spec: str, adversary: type[Access]) -> str | None:
    """Why the attack `spec` cannot be tried as `adversary`; null where it can."""
    return reason_of(_check, recorded, spec, adversary)


def _check(recorded: Recorded, spec: str, adversary: type[Access]) -> None:
    attack: Attack = ATTACKS.make(spec)
    with answering_for(attack, spec):
        fault = misdeclared(attack)
    if fault is not None:
        raise CannotRun(fault)
    case = recorded.case
    _check_held(case, adversary)
    _check_judged(recorded, attack, spec)
    question = question_of(case, attack, seed=0, detailed=False)
    for name in attack.knows:
        if name in SHADOWS:
            _check_shadows(recorded, attack, name)
        elif not held(name, case, question):
            nobody = name == "candidates" and case.truth is None
            raise CannotRun(NO_CANDIDATES if nobody else _GIVEN.get(name) or missing(name, case, attack))
    grant(case, adversary, changes_network=attack.changes_network)
    with answering_for(attack, spec):
        check_protocol(case, attack, adversary)


def _check_held(case: Case, adversary: type[Access]) -> None:
    """Say in a record's words what it lacks."""
    name = adversary.adversary
    if name in ("crafting server", "blind crafting server"):
        raise CannotRun(NO_CLIENTS)
    if adversary in (ReportAccess, PayloadAccess):
        raise CannotRun(UNRECORDED)
    if name in ("outsider", "owner") and case.model is None:
        raise CannotRun(NO_MODEL)
    if name in ("curious server", "blind server") and not case.rounds:
        raise CannotRun(NO_ROUND)


def _check_judged(recorded: Recorded, attack: Attack, spec: str) -> None:
    """Refuse what would take its time, and could be judged by nobody in the end."""
    kind, truth = kind_of(attack), recorded.case.truth
    assert kind is not None
    if truth is None:
        if kind.about == "clients" and not spec.startswith(LABELS):
            raise CannotRun(NOBODY)
    elif not truth.clients and (kind.about == "clients" or attack.family == "source"):
        lacking = recorded.lacking
        raise CannotRun(
            f"nobody says what client {quoted(lacking)} held; give its images in --members, too"
            if lacking
            else NO_OWNERS
        )


def _check_shadows(recorded: Recorded, attack: Attack, name: str) -> None:
    if recorded.experiment is None:
        raise CannotRun(NO_CANDIDATES)
    kind = "offline" if name == "shadows" else "online"
    if name == "shadows" and not len(recorded.experiment.auxiliary):
        raise CannotRun(_GIVEN["auxiliary"])
    count = check_possible(recorded.experiment, kind, "none")
    if isinstance(attack, ShadowAttack):
        check_enough(count, attack.fewest_shadows)
