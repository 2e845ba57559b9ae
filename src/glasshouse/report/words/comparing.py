"""What the comparison of runs says in words."""

from collections.abc import Sequence

from glasshouse.report.differing import Differing, Experiment
from glasshouse.showing import (
    Differences,
    about_words,
    metric_label,
    pairing_words,
    signed,
    verdict_words,
)
from glasshouse.spelling import listed, number
from glasshouse.verdicts.differences import Difference
from glasshouse.verdicts.measure import undefended
from glasshouse.verdicts.metrics import CENTRAL, metric_words
from glasshouse.verdicts.outcome import strongest

MOST_LINES = 8
"""As many differences the terminal shows."""

MOST_NAMED = 8
"""As many settings a sentence names."""

SHORT = 40
"""As many characters may the values of a setting have in a sentence."""


def lede(differences: Differences, among: int) -> str:
    """What the differences show, counted, and what that is worth."""
    if not differences:
        return "The runs have no number in common."
    verdicts = [one.verdict(among) for one in differences]
    shown = sum(verdict in ("more", "less") for verdict in verdicts)
    luck, judged = verdicts.count("may be luck"), len(verdicts) - verdicts.count("not judged")
    counted = (
        f"Of {judged} differences that can be judged, {shown or 'none'} {'is' if shown < 2 else 'are'} shown"
    )
    return f"{counted}{f'; {luck} may be luck, as one 95% interval in twenty misses' if luck else ''}."


def shift_words(one: Difference) -> str:
    """Both numbers and their difference in a line."""
    unit = metric_words(one.row.metric).unit
    both = " and ".join(number(m.value, unit) for m in (one.first, one.second))
    return f"{metric_label(one.first)} {both}, difference {signed(one)}, {pairing_words(one)}"


def shift_class(one: Difference, among: int) -> str:
    """The class of a chip: marked where a difference of a leak is shown."""
    return "moderate leaks" if one.of_leak and one.verdict(among) == "more" else ""


def pooling_notes(compared: Sequence[Experiment]) -> list[str]:
    """Which runs are taken as one, and which seeds were counted once."""
    notes = []
    for one in compared:
        if len(one.runs) > 1:
            seeds = listed([str(seed) for seed in sorted(one.seeds)])
            notes.append(f"{one.name}: these differ by seed alone and are pooled, over seeds {seeds}.")
        if one.doubled:
            doubled = listed([str(seed) for seed in sorted(one.doubled)])
            notes.append(f"{one.name}: seed {doubled} is in more than one of them and is counted once.")
    return notes


def terminal_lines(
    compared: Sequence[Experiment],
    causes: Sequence[Differing],
    notes: Sequence[str],
    differences: Differences,
    among: int,
) -> list[str]:
    """A short summary: what differs, what that shows, and the differences that matter most."""
    if len(compared) == 1:
        return list(notes)
    named = [_cause(one) for one in causes[:MOST_NAMED]]
    named += [f"{len(causes) - MOST_NAMED} more"] if len(causes) > MOST_NAMED else []
    names = listed([one.name for one in compared])
    return [
        *notes,
        f"{names} differ in {listed(named) if named else 'nothing that their folders name'}.",
        lede(differences, among),
        *(
            f"  {about_words(one)}: {shift_words(one)}: {verdict_words(one, among)}"
            for one in _telling(differences, among)
        ),
    ]


def _cause(one: Differing) -> str:
    """A setting with its values, where these are short."""
    values = " and ".join(one.values)
    return f"{one.name} ({values})" if len(values) <= SHORT else one.name


def _telling(differences: Differences, among: int) -> list[Difference]:
    """Those that are shown, then of each adversary the strongest attack, undefended, up to some lines."""
    shown = [one for one in differences if one.verdict(among) in ("more", "less")]
    leading: list[Difference] = []
    differences = Differences(one for one in differences if one.row.strategy != CENTRAL)
    attacked = [one for one in differences if one.of_leak]
    for pair in dict.fromkeys((one.names[1], one.row.adversary) for one in attacked):
        mine = [one for one in attacked if (one.names[1], one.row.adversary) == pair]
        plain = undefended([one.first for one in mine])
        mine = [one for one in mine if (one.row.defence or "none") == plain]
        best = strongest([one.first for one in mine])
        leading += [one for one in mine if one.first is best]
    leading += [one for one in differences if not one.of_leak and (one.row.defence or "none") == "none"]
    return [*shown, *(one for one in leading if one not in shown)][:MOST_LINES]
