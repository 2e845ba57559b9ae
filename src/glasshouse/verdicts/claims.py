"""What findings say to the claims of a paper: one verdict for each, from what every setting says to it.

A claim is about parts: a quantity in a setting (a data set and a network). The interval of each part lies
where the claim is true, or where it is false, or allows for both. A claim holds if all its parts say so, and
is refuted if all deny it; parts that contradict each other make it mixed. Where some say so and the others
decide nothing, it holds, or is refuted, in part. Demanding the same of every part keeps the chance of a wrong
verdict at that of one part, and for the number of verdicts the intervals are widened (Bonferroni): of m
claims each is judged at the level 1 - 0.05 / m, so that all verdicts are right together with 95%.
"""

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from math import inf

from glasshouse.measures.estimate import LEVEL, Estimate
from glasshouse.verdicts.seeds import UNBOUNDED, across_seeds

Region = tuple[float, float]
ABOVE, BELOW = (0.0, inf), (-inf, 0.0)

HOLDS, REFUTED, MIXED, NOT_SHOWN, OPEN = "holds", "refuted", "mixed", "not shown", "open"
HOLDS_IN_PART, REFUTED_IN_PART = "holds in part", "refuted in part"
_REASON_OF = {HOLDS_IN_PART: MIXED, REFUTED_IN_PART: REFUTED}
"""The verdict whose reason for what differs from the paper serves where none is given for this one."""
MISSING = "the cells that it needs are not done"
SHOWN = 6
"""Parts that are listed one by one beside a verdict; of more they are counted."""
NAMED = 2
"""Counted parts that are named; the table of all parts has the others."""


@dataclass(frozen=True)
class Part:
    """What one setting says to a claim: `what` is measured, and `where`.

    `seeds` has an estimate for each seed, with the 95% interval over its records where it has one. The claim
    is true in the region `holds` and false in `refuted`, or everywhere else where that is null; an interval
    in both is of an effect too small to count. `barred` says why nothing can be judged here, for instance
    that nothing was trained far enough. Where intervals are over groups of records, such as rounds, `groups`
    is how many.
    """

    where: str
    what: str
    seeds: Sequence[Estimate]
    cells: Sequence[str]
    holds: Region = ABOVE
    refuted: Region | None = None
    barred: str = ""
    same_records: bool = False
    groups: int | None = None
    bounds: Region = UNBOUNDED
    form: str = "+.3f"
    unit: str = ""


@dataclass(frozen=True)
class Claim:
    """What a paper says, in our words: in which `section`, and the number `printed` there.

    `why` has, for a verdict, the reason for what differs from the paper. What a study asks of its `own`
    accord stands apart from the paper's claims, and is corrected for apart.
    """

    text: str
    parts: Sequence[Part]
    section: str = ""
    printed: str = ""
    why: Mapping[str, str] = field(default_factory=dict)
    own: bool = False


@dataclass(frozen=True)
class Said:
    """What one part said: a verdict, the number with its interval, and the cells that it rests on."""

    where: str
    what: str
    verdict: str
    measured: str
    cells: tuple[str, ...] = ()
    value: float | None = None


@dataclass(frozen=True)
class Verdict:
    """What the measured cells say to one claim; `level` is that of its intervals."""

    claim: str
    verdict: str
    reason: str = ""
    section: str = ""
    printed: str = ""
    why: str = ""
    own: bool = False
    level: float = LEVEL
    parts: tuple[Said, ...] = ()

    @property
    def cells(self) -> list[str]:
        """The cells that it rests on."""
        return list(dict.fromkeys(cell for part in self.parts for cell in part.cells))


def settle(claims: Sequence[Claim]) -> list[Verdict]:
    """A verdict on each claim, corrected for the number of the paper's claims, or of the study's own."""
    levels = {
        own: 1 - (1 - LEVEL) / max(1, sum(claim.own == own for claim in claims)) for own in (False, True)
    }
    return [_settled(claim, levels[claim.own]) for claim in claims]


def correction(verdicts: Sequence[Verdict]) -> str:
    """In a sentence, what was done about the number of verdicts."""
    said = []
    for own, words in ((False, "claims of the paper"), (True, "questions of the study's own")):
        group = [verdict for verdict in verdicts if verdict.own == own]
        if group:
            said.append(f"{len(group)} {words} are each judged by {100 * group[0].level:.4g}% intervals")
    together = f"so that the verdicts are right together with {LEVEL:.0%} (Bonferroni)"
    return f"{', and '.join(said)}, {together}." if said else ""


def _settled(claim: Claim, level: float) -> Verdict:
    said = tuple(_said(part, level) for part in claim.parts)
    judged = [part.verdict for part in said if part.verdict != OPEN]
    verdict = _together(judged)
    return Verdict(
        claim.text,
        verdict,
        _reason(claim.parts, said),
        claim.section,
        claim.printed,
        claim.why.get(verdict) or claim.why.get(_REASON_OF.get(verdict, verdict), ""),
        claim.own,
        level,
        said,
    )


def _said(part: Part, level: float) -> Said:
    if part.barred:
        return Said(part.where, part.what, OPEN, part.barred, tuple(part.cells))
    over = (
        across_seeds(
            part.seeds,
            level=level,
            bounds=part.bounds,
            same_records=part.same_records,
            groups=part.groups,
        )
        if part.seeds
        else None
    )
    if over is None or over.value is None or over.low is None or over.high is None:
        return Said(part.where, part.what, OPEN, (over and over.note) or MISSING, tuple(part.cells))
    low, high = over.low, over.high
    decided = _decided(part, over.low, over.high)
    ends = f"[{low:{part.form}}, {high:{part.form}}]{part.unit and ' ' + part.unit}"
    seeds = f", {len(part.seeds)} seeds" if len(part.seeds) > 1 and over.n != len(part.seeds) else ""
    measured = f"{over.value:{part.form}} {ends}, n = {over.n:,}{seeds}"
    return Said(part.where, part.what, decided, measured, tuple(part.cells), over.value)


def _decided(part: Part, low: float, high: float) -> str:
    """Where an interval lies: an effect too small to count denies a claim first."""

    def inside(region: Region) -> bool:
        return region[0] <= low and high <= region[1]

    outside = high < part.holds[0] or low > part.holds[1]
    if inside(part.refuted) if part.refuted else outside:
        return REFUTED
    return HOLDS if inside(part.holds) else NOT_SHOWN


def _together(judged: Sequence[str]) -> str:
    if not judged:
        return OPEN
    found = set(judged)
    if len(found) == 1:
        return found.pop()
    if {HOLDS, REFUTED} <= found:
        return MIXED
    return HOLDS_IN_PART if HOLDS in found else REFUTED_IN_PART


def _reason(parts: Sequence[Part], said: Sequence[Said]) -> str:
    """Of each quantity the parts one by one, or how many say what; then why others are open."""
    judged = [pair for pair in zip(parts, said) if pair[1].verdict != OPEN]
    few, differ = len(judged) <= SHOWN, len({one.verdict for _, one in judged}) > 1
    sentences = []
    for what in dict.fromkeys(part.what for part, _ in judged):
        group = [pair for pair in judged if pair[0].what == what]
        told = _listed(group, differ) if few else _counted(group)
        sentences.append(f"{what}{', ' if few else ': '}{'; '.join(told)}")
    left = [one.measured for one in said if one.verdict == OPEN]
    kinds = Counter(reason.partition(":")[0] for reason in left)
    for kind, count in kinds.items():
        reasons = {reason for reason in left if reason.partition(":")[0] == kind}
        reason = reasons.pop() if len(reasons) == 1 else kind
        sentences.append(f"open in {count} of {len(said)}: {reason}" if judged else reason)
    return "; ".join(sentences) or MISSING


def _listed(group: Sequence[tuple[Part, Said]], differ: bool) -> Iterator[str]:
    """Each part with its interval, and what it says where not all parts of the claim say the same."""
    for _, said in group:
        yield f"{said.where}: {said.measured}{f' ({said.verdict})' if differ else ''}"


def _counted(group: Sequence[tuple[Part, Said]]) -> Iterator[str]:
    """How many parts say what, from which value to which; and where, if few say so and others do not."""
    for word in dict.fromkeys(said.verdict for _, said in group):
        some = [pair for pair in group if pair[1].verdict == word]
        share = f" in {len(some)} of {len(group)}" if len(group) > 1 else ""
        named = len(some) < len(group) and len(some) <= NAMED
        places = f" on {' and '.join(said.where for _, said in some)}" if named else ""
        yield f"{word}{share} ({_span(some)}){places}"


def _span(some: Sequence[tuple[Part, Said]]) -> str:
    """The least and the greatest value."""
    part, _ = some[0]
    values = [said.value for _, said in some if said.value is not None]
    ends = dict.fromkeys(f"{value:{part.form}}" for value in (min(values), max(values)))
    return " to ".join(ends) + (part.unit and f" {part.unit}")
