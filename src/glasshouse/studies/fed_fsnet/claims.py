"""The paper's claims, and what the study asks beyond them, against what was measured.

Rows of one setting and seed share the division of the images, the first weights and the participants' draw,
so they are compared in pairs. Accuracies are means over the last five rounds; what the last round alone says
stands beside them.
"""

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence

from glasshouse.measures.estimate import mean
from glasshouse.studies.fed_fsnet.measured import (
    DOWN,
    GLOBAL,
    JUMP,
    LAST,
    LOCAL,
    MEMBERSHIP,
    MIMICKED,
    NEAREST,
    REPORTED,
    SPEED,
    WOBBLE,
    Measured,
    Quantity,
    Setting,
)
from glasshouse.studies.fed_fsnet.printed import printed
from glasshouse.studies.fed_fsnet.rows import OTHERS, RECALL, RIVALS, WORDS
from glasshouse.verdicts.claims import Unit, Verdict, judge

LIMITED = 0.1
"""Added to what a device receives, so much of the model's own bytes still counts as very little."""
NEGLIGIBLE = 0.01
"""A difference in AUC, or in a share, that counts as none."""
COMPETITORS = tuple(row.name for row in RIVALS)
BOTH = (GLOBAL, LOCAL)


def verdicts(measured: Measured) -> list[Verdict]:
    """A verdict on each claim, for all settings of a fraction together and for each of them."""
    made = _learning(measured)
    for fraction in dict.fromkeys(setting.fraction for setting in measured.settings()):
        settings = [own for own in measured.settings() if own.fraction == fraction]
        made += [
            *_margin(measured, settings),
            *_best(measured, settings),
            *_bounds(measured, settings),
            *_training(measured, settings),
            *_communication(measured, settings),
            *_ablations(measured, settings),
            *_others(measured, settings),
            *_leaks(measured, settings),
        ]
    return made


def _learning(measured: Measured) -> list[Verdict]:
    """Federations whose accuracies say little."""
    if not measured.federations:
        return []
    claim = "0. Every global model ends above its most frequent class"
    counts = Counter(cell.partition("/")[2] for cell, _ in measured.unlearned)
    named = ", ".join(f"{count} of {cell}" for cell, count in counts.items())
    short = f"{len(measured.unlearned)} of {measured.federations} do not"
    verdict = "refuted" if counts else "holds"
    return [Verdict(claim, verdict, f"{short}: {named}" if counts else short)]


def _margin(measured: Measured, settings: Sequence[Setting]) -> Iterator[Verdict]:
    """Section 4.4.1: Fed-FSNet surpasses the lower bound by a significant margin."""
    for quantity in BOTH:
        pairs = [(setting, "fedavg") for setting in settings]
        yield from _above(measured, "1. Fed-FSNet", "fed-fsnet", pairs, "FedAvg", quantity)
        short: dict[Unit, float] = {}
        for setting in settings:
            paper = _printed(setting, "fed-fsnet", "fedavg", quantity)
            gains = measured.apart(setting, "fed-fsnet", "fedavg", quantity) if paper is not None else {}
            short |= {unit: gain - (paper or 0.0) for unit, gain in gains.items()}
        if short:
            claim = f"1. Its gain in {quantity.name} over FedAvg is above the printed one{_at(settings)}"
            yield judge(claim, short, "measured gain minus printed gain, late rounds")


def _best(measured: Measured, settings: Sequence[Setting]) -> Iterator[Verdict]:
    """Section 4.4.1: constantly the best performance, against each rival and against the best of them."""
    for quantity in BOTH:
        for rival in COMPETITORS[1:]:
            pairs = [(setting, rival) for setting in settings if rival in measured.rows(setting)]
            if pairs:
                yield _together(measured, "2. Fed-FSNet", "fed-fsnet", pairs, WORDS[rival], quantity)
        rivals = [
            (setting, measured.best(setting, COMPETITORS, quantity)[0])
            for setting in settings
            if set(COMPETITORS) & set(measured.rows(setting)) > {"fedavg"}
        ]
        yield from _above(measured, "2. Fed-FSNet", "fed-fsnet", rivals, "the best rival", quantity)


def _bounds(measured: Measured, settings: Sequence[Setting]) -> Iterator[Verdict]:
    """Section 4.2: FedAvg on IID data bounds what can be had without."""
    for quantity in BOTH:
        pairs = []
        for setting in settings:
            others = [row for row in measured.rows(setting) if row != "upper-bound"]
            best = measured.best(setting, others, quantity)
            pairs += [(setting, best[0])] if best and "upper-bound" in measured.rows(setting) else []
        if pairs:
            yield _together(
                measured, "3. FedAvg on IID data", "upper-bound", pairs, "the best without", quantity
            )


def _training(measured: Measured, settings: Sequence[Setting]) -> Iterator[Verdict]:
    """Section 4.4.2: the training is more stable and converges faster than FedAvg's."""
    at = _at(settings)
    faster = _collected(measured.apart(setting, "fed-fsnet", "fedavg", SPEED) for setting in settings)
    yield judge(
        f"4. Fed-FSNet converges faster than FedAvg{at}",
        faster,
        "Acc_global averaged over all rounds, Fed-FSNet minus FedAvg",
    )
    for quantity in (WOBBLE, JUMP):
        calmer = _collected(measured.apart(setting, "fedavg", "fed-fsnet", quantity) for setting in settings)
        yield judge(
            f"4. Fed-FSNet's training is more stable than FedAvg's, by the {quantity.name}{at}",
            calmer,
            f"{quantity.name} of Acc_global at the end, FedAvg minus Fed-FSNet",
        )


def _communication(measured: Measured, settings: Sequence[Setting]) -> Iterator[Verdict]:
    """Section 4.5: mimic samples have a very limited impact on the communication, and features less."""
    for setting in settings:
        model = measured.at(setting, "fedavg", DOWN)
        for row, what in (("fed-fsnet", "mimic samples"), ("fed-fsnet-features", "mimic features")):
            sent = measured.at(setting, row, DOWN)
            added = {setting.unit(seed): sent[seed] / model[seed] - 1 for seed in sent if seed in model}
            if not added:
                continue
            most = max(added.values())
            yield Verdict(
                f"5. The {what} add little to what a device receives ({setting})",
                "holds" if most <= LIMITED else "refuted",
                f"they add {most:.1%} to the bytes of the model (little: up to {LIMITED:.0%})",
            )


def _ablations(measured: Measured, settings: Sequence[Setting]) -> Iterator[Verdict]:
    """Whether the parts of Fed-FSNet matter: each variant against it, and against FedAvg."""
    for setting in settings:
        for row in measured.rows(setting, "ablation"):
            for other in ("fed-fsnet", "fedavg"):
                pairs = [(setting, other)]
                yield _together(measured, f"6. {WORDS[row]},", row, pairs, WORDS[other], GLOBAL)


def _others(measured: Measured, settings: Sequence[Setting]) -> Iterator[Verdict]:
    """Beyond the paper: every other strategy against FedAvg, and the best of all against the next."""
    compared = [(row.name, "fedavg") for row in OTHERS]
    compared += [(RECALL.name, rival) for rival in ("fedgen", "fed-fsnet")]
    for row, rival in compared:
        pairs = [(own, rival) for own in settings if {row, rival} <= set(measured.rows(own))]
        if pairs and row == RECALL.name:
            yield from _above(measured, f"7. {WORDS[row]}", row, pairs, WORDS[rival], GLOBAL)
        elif pairs:
            yield _together(measured, f"7. {WORDS[row]}", row, pairs, WORDS[rival], GLOBAL)
    for setting in settings:
        rows = [row for row in measured.rows(setting) if row != "upper-bound"]
        for quantity in BOTH:
            order = measured.best(setting, rows, quantity)
            if len(order) > 1:
                named = f"{WORDS[order[1]]}, the next of {len(order)} ({setting})"
                start = f"7. {WORDS[order[0]]}, the best,"
                yield _compared(measured, start, order[0], [(setting, order[1])], named, quantity)


def _leaks(measured: Measured, settings: Sequence[Setting]) -> Iterator[Verdict]:
    """Beyond the paper: whether strategies give away more than FedAvg, and what they tell beside updates."""
    rows = dict.fromkeys(row for setting in settings for row in measured.rows(setting, "leaks"))
    at = _at(settings)
    for row in rows:
        gains = _collected(measured.apart(setting, row, "fedavg", MEMBERSHIP) for setting in settings)
        if row != "fedavg" and gains:
            claim = f"8. {WORDS[row]} gives away more of its members than FedAvg{at}"
            what = f"AUC of loss-threshold, minus FedAvg's (no difference: within {NEGLIGIBLE:g})"
            yield judge(claim, gains, what, negligible=NEGLIGIBLE)
    told = (
        (REPORTED, "what devices report tells their labels", "label overlap over a blind guess"),
        (MIMICKED, "what the server sends lies nearer to members", "AUC of the distance, over a half"),
        (NEAREST, "what the server sends is nearest to members", "share of members, over a half"),
    )
    for quantity, claimed, what in told:
        for row in rows:
            values = _collected(measured.over_chance(setting, row, quantity) for setting in settings)
            if values:
                claim = f"8. {WORDS[row]}: {claimed}{at}"
                yield judge(claim, values, what, negligible=NEGLIGIBLE)


def _above(
    measured: Measured,
    start: str,
    row: str,
    pairs: Sequence[tuple[Setting, str]],
    named: str,
    quantity: Quantity,
) -> Iterator[Verdict]:
    """Whether a row is above what it is paired with, in all settings together and in each."""
    if len(pairs) > 1:
        yield _together(measured, start, row, pairs, named, quantity)
    for setting, other in pairs:
        yield _compared(measured, start, row, [(setting, other)], f"{named} ({setting})", quantity)


def _together(
    measured: Measured,
    start: str,
    row: str,
    pairs: Sequence[tuple[Setting, str]],
    named: str,
    quantity: Quantity,
) -> Verdict:
    where = _at([setting for setting, _ in pairs])
    return _compared(measured, start, row, pairs, f"{named}{where}", quantity)


def _compared(
    measured: Measured,
    start: str,
    row: str,
    pairs: Sequence[tuple[Setting, str]],
    named: str,
    quantity: Quantity,
) -> Verdict:
    """The verdict on late accuracies; its reason has the last round's, and the paper's where it has them."""
    late = _collected(measured.apart(setting, row, other, quantity) for setting, other in pairs)
    last = _collected(measured.apart(setting, row, other, LAST[quantity]) for setting, other in pairs)
    rivals = list(dict.fromkeys(WORDS[other] for _, other in pairs))
    said = [f"after the last round {_short(last)}"] if last else []
    paper = [
        gain for setting, other in pairs if (gain := _printed(setting, row, other, quantity)) is not None
    ]
    if paper:
        ends = sorted({round(gain, 3) for gain in paper})
        said.append("printed " + " to ".join(f"{gain:+.3f}" for gain in (ends[0], ends[-1])[: len(ends)]))
    beside = f" ({'; '.join(said)})" if said else ""
    what = f"{WORDS[row]} minus {' or '.join(rivals)}, late rounds{beside}"
    return judge(f"{start} has a higher {quantity.name} than {named}", late, what)


def _printed(setting: Setting, row: str, other: str, quantity: Quantity) -> float | None:
    """The difference that the paper prints."""
    place = BOTH.index(quantity)
    mine, yours = (printed(setting.data, own, float(setting.fraction))[place] for own in (row, other))
    return None if mine is None or yours is None else mine - yours


def _collected(parts: Iterable[dict[Unit, float]]) -> dict[Unit, float]:
    return {unit: value for part in parts for unit, value in part.items()}


def _short(values: dict[Unit, float]) -> str:
    found = mean(list(values.values()))
    if found.low is None or found.high is None:
        return f"{found.value:+.4f}"
    return f"{found.value:+.4f}, {found.low:+.4f} to {found.high:+.4f} over all comparisons"


def _at(settings: Sequence[Setting]) -> str:
    """Which settings a claim is about."""
    if len(settings) == 1:
        return f" ({settings[0]})"
    return f" (f = {settings[0].fraction}, {len(settings)} settings)"
