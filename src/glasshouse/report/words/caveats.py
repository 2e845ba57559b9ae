"""How far the findings can be trusted."""

from collections.abc import Sequence

from glasshouse.exhibits import Division
from glasshouse.findings import Finding
from glasshouse.spelling import listed
from glasshouse.verdicts.comparison import learned_less
from glasshouse.verdicts.measure import Measure, leaks
from glasshouse.verdicts.metrics import NOT_RUN, metric_words

FEW = 100  # below this many cases a rate moves by more than a few points from one sample to the next

WHOLE = {"whole-clients": "clients", "users": "users", "users-within-clients": "users"}
"""What was drawn whole, by how a division holds out."""


def caveats(
    rows: Sequence[Finding], measures: Sequence[Measure], divisions: Sequence[Division] = ()
) -> list[str]:
    """What a reader should keep in mind, from what the rows hold and lack, and how the data were divided."""
    attacked = [m for m in measures if leaks(m)]
    lines = []
    if attacked:
        lines.append(
            "Where no leak was found, these attacks found none with the access and knowledge they had. "
            "A stronger attack, or one that knows more, may still succeed: that is not proof of safety."
        )
    lines.append(_seeds(rows))
    if any(m.row.family == "membership" for m in attacked):
        lines += [
            _whole(one) for one in dict.fromkeys(division.held_out for division in divisions) if one in WHOLE
        ]
    if len({(m.row.adversary, m.row.attack) for m in attacked}) > 1:
        lines.append(
            "Each answer leads with the attack that got furthest. Its interval is not widened for having "
            "been chosen, nor for the number of attacks and defences compared."
        )
    if learned_less(measures):
        lines.append(
            "The federated model learned clearly less than the same network trained centrally. A model that "
            "has not learned its data has little to give away: train longer before trusting that no leak was "
            "found."
        )
    small = {(m.row.adversary, m.row.attack): m.n for m in attacked if m.n is not None and m.n < FEW}
    if small:
        few = ", ".join(f"{attack} by the {adversary} (n = {n})" for (adversary, attack), n in small.items())
        lines.append(f"Fewer than {FEW} cases stand behind {few}; read their intervals before their values.")
    return [*lines, *_uncovered(measures), *_not_estimable(measures), *_unjudged(measures)]


def _whole(held_out: str) -> str:
    """What membership means where whole clients or users were drawn."""
    drawn = WHOLE[held_out]
    return (
        f"Whole {drawn} were held out, not single records. So the intervals of membership are over {drawn}, "
        "and what tells those trained on from the others, like another scanner, looks like a leak, too."
    )


def _seeds(rows: Sequence[Finding]) -> str:
    seeds = {row.seed for row in rows if row.seed is not None}
    if len(seeds) < 2:
        return (
            "One seed. The intervals cover which records or clients happened to be measured, not the luck "
            "of training: another run may move a number by more than its interval."
        )
    if all(row.source == "audit" for row in rows):
        return (
            f"Values are means over {len(seeds)} seeds; an interval covers both which records or clients "
            "happened to be measured and the luck of training. ROC curves, pictures, PSNR by step and risks "
            f"are those of seed {min(seeds)}."
        )
    return (
        f"Values are means over {len(seeds)} seeds; an interval reaches from the lowest to the highest "
        "end of the seeds' own intervals."
    )


def _uncovered(measures: Sequence[Measure]) -> list[str]:
    """What was made of images and network, and what a defence leaves open: it is noted beside accuracies."""
    costs = [
        m.row
        for m in measures
        if m.row.metric == "test-accuracy"
        and (m.row.source == "audit" or m.row.defence not in (None, "none"))
    ]
    notes = dict.fromkeys(row.note for row in costs if row.note)
    return [f"{note[:1].upper()}{note[1:]}." for note in notes]


def _not_estimable(measures: Sequence[Measure]) -> list[str]:
    """A line for each metric and reason, naming the attacks it holds for."""
    groups: dict[tuple[str, str], dict[str, dict[str, None]]] = {}
    for m in measures:
        if m.value is None:
            what = "Not run:"
            if m.row.metric != NOT_RUN:
                what = f"Not estimable: {metric_words(m.row.metric).label} of"
            attacks = groups.setdefault((what, m.reason), {})
            attacks.setdefault(m.row.adversary or "", {})[m.row.attack or m.row.family] = None
    lines = []
    for (what, reason), attacks in groups.items():
        named = [
            f"{listed(list(names))}{f' by the {adversary}' if adversary else ''}"
            for adversary, names in attacks.items()
        ]
        lines.append(f"{what} {'; '.join(named)}: {reason}.")
    return lines


def _unjudged(measures: Sequence[Measure]) -> list[str]:
    """A line for each note on a value without a verdict, naming the findings it holds for."""
    groups: dict[str, dict[str, None]] = {}
    for m in measures:
        if leaks(m) and m.judged == "unjudged":
            named = (m.row.attack or m.row.family, metric_words(m.row.metric).label, m.row.adversary)
            groups.setdefault(m.row.note or "", {})[", ".join(filter(None, named))] = None
    return [
        f"No interval or no chance level, so no verdict: {'; '.join(findings)}{f': {note}' if note else ''}."
        for note, findings in groups.items()
    ]
