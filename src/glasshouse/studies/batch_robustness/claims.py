"""The paper's four claims, and a fifth about federations, against what was measured.

Models of one data set, network and seed share their images and first weights, so they are compared in pairs.
"""

from collections import Counter
from collections.abc import Callable, Mapping

import numpy as np

from glasshouse.measures.estimate import proportion
from glasshouse.studies.batch_robustness.explaining import Points, explained
from glasshouse.studies.batch_robustness.measured import (
    CLEAN,
    FGSM,
    PGD,
    TOP,
    WEAK_FGSM,
    WEAK_PGD,
    Line,
    Measured,
    Quantity,
)
from glasshouse.verdicts.claims import Unit, Verdict, judge, judge_flat

COMPARED = "lines where an attack leaves under 5% at every batch size are not compared"
COUNTEREXAMPLE = ("fashion-mnist", "stdcnn")
ROBUST = (FGSM, PGD, WEAK_FGSM, WEAK_PGD)
MOMENTUM = {"lr": "lr-m0.9", "lr-bs": "lr-bs-m0.9"}


def verdicts(measured: Measured) -> list[Verdict]:
    """A verdict on each claim, for each quantity that it is about."""
    return [
        *_learning(measured),
        *_flatness(measured),
        *_counterexample(measured),
        *_explanation(measured),
        *_momentum(measured),
        *_federation(measured),
        *_training_time(measured),
    ]


def _learning(measured: Measured) -> list[Verdict]:
    """Models that say nothing about robustness, and are in none of the comparisons below."""
    if not measured.collapsed:
        return []
    claim = "0. Every model learns more than its most frequent class"
    counts = Counter(cell.rpartition("/")[0] for cell, _ in measured.collapsed)
    named = ", ".join(f"{count} of {line}" for line, count in counts.items())
    reason = f"{len(measured.collapsed)} of {measured.models} did not, and are left out below: {named}"
    return [Verdict(claim, "refuted", reason)]


def _flatness(measured: Measured) -> list[Verdict]:
    """Claim 1, and the weaker one that LR/BS is at least flatter than LR."""
    made = []
    for quantity in (CLEAN, *ROBUST, TOP):
        slopes = _slopes(measured, "lr-bs", quantity)
        claim = f"1. LR/BS keeps {_named(quantity)} flat in the batch size"
        what = f"change with each doubling (flat: within {quantity.margin:g})"
        made.append(judge_flat(claim, slopes, what, margin=quantity.margin, where=COMPARED))
    for quantity in (CLEAN, *ROBUST, TOP):
        fixed, scaled = (_slopes(measured, setting, quantity) for setting in ("lr", "lr-bs"))
        gains = {unit: abs(fixed[unit]) - abs(scaled[unit]) for unit in fixed if unit in scaled}
        claim = f"1. LR/BS keeps {_named(quantity)} flatter than a fixed rate does"
        what = "steepness under LR minus that under LR/BS, each doubling"
        made.append(judge(claim, gains, what, where=COMPARED))
    return made


def _counterexample(measured: Measured) -> list[Verdict]:
    """Claim 2: StdCNN on Fashion-MNIST at a fixed rate."""
    made = []
    for kind in ("grid", "longer"):
        lines = [line for line in measured.lines(kind) if line.setting == "lr"]
        line = next((own for own in lines if (own.data, own.model) == COUNTEREXAMPLE), None)
        if line is None:
            continue
        longer = " when trained four times as long" if kind == "longer" else ""
        for quantity in (*ROBUST, TOP):
            slopes = {
                (line.data, line.model, seed): own
                for seed, own in measured.slopes(line, quantity).items()
                if not measured.spent(line, quantity)
            }
            claim = f"2. StdCNN on Fashion-MNIST under LR: {_named(quantity)} rises with the batch{longer}"
            made.append(judge(claim, slopes, "change with each doubling", where=COMPARED))
    return made


def _explanation(measured: Measured) -> list[Verdict]:
    """Whether robustness falls where curvature rises, along the batch sizes of a line."""
    made = []
    for quantity in (FGSM, PGD, WEAK_PGD):
        rows: dict[tuple[str, str], list[float]] = {}
        for line in measured.lines("grid"):
            found = measured.correlation(line, TOP, quantity).value
            if found is not None and not measured.spent(line, quantity):
                rows.setdefault((line.data, line.model), []).append(-found)
        values = {(data, model, 0): float(np.mean(own)) for (data, model), own in rows.items()}
        claim = f"2. Where curvature is higher along the batch sizes, {_named(quantity)} is lower"
        what = "minus the rank correlation, averaged over a row's settings"
        made.append(judge(claim, values, what, where=COMPARED))
    return made


def _momentum(measured: Measured) -> list[Verdict]:
    """Claims 3 and 4: momentum 0.9 against none, in pairs, averaged over batch sizes."""
    made = []
    for setting, other in MOMENTUM.items():
        how = "LR" if setting == "lr" else "LR/BS"
        falls = {unit: -gain for unit, gain in _gains(measured, setting, other, TOP).items()}
        claim = f"3. Momentum 0.9 lowers the top eigenvalue under {how}"
        made.append(judge(claim, falls, "halvings of the top eigenvalue"))
        for quantity in ROBUST:
            claim = f"4. Momentum 0.9 raises {_named(quantity)} under {how}"
            gains = _gains(measured, setting, other, quantity)
            what = "gain in accuracy" + _wins(measured, setting, other, quantity)
            made.append(judge(claim, gains, what, where=COMPARED))
    for quantity in (PGD, WEAK_PGD):
        kept = _kept(measured, "lr", "lr-m0.9", quantity)
        claim = f"4. Momentum 0.9 raises {_named(quantity)} under LR, relative to clean accuracy"
        made.append(judge(claim, kept, "gain in that share", where=COMPARED))
    return made


def _federation(measured: Measured) -> list[Verdict]:
    """Whether FedAvg is as robust as training in one place, for as many epochs, at the same learning rate."""
    made = []
    lines = measured.lines("federated")
    for division in dict.fromkeys(part.split("/")[0] for line in lines for part in measured.under(line.head)):
        for rival, words in (
            ("local", "a central model with a client's batch"),
            ("effective", "a central model with all clients' batches as one"),
        ):
            for quantity in (CLEAN, PGD, WEAK_PGD, TOP):
                costs = _costs(measured, division, rival, quantity)
                what = "doublings, federated minus central" if quantity is TOP else "federated minus central"
                claim = f"5. FedAvg ({division}) has a higher {quantity.name} than {words}"
                made.append(judge(claim, costs, what))
    return [own for own in made if own.verdict != "open"] or made[:1]


def _training_time(measured: Measured) -> list[Verdict]:
    """Whether it all comes down to how far training has gone, and what is left beside that."""
    made = []
    for quantity in (CLEAN, PGD, WEAK_PGD, TOP):
        claim = f"6. Training time, lr x steps / (1 - m), explains {_named(quantity)} better than batch size"
        gains = explained(measured, quantity, Points.gain_of_time)
        made.append(judge(claim, gains, "difference of the shares of variance that each explains alone"))
    for quantity in (WEAK_FGSM, WEAK_PGD, TOP):
        claim = f"6. At equal training time a larger batch leaves {_named(quantity)} as it is"
        what = f"change with each doubling (flat: within {quantity.margin:g})"
        slopes = explained(measured, quantity, Points.by_batch)
        made.append(judge_flat(claim, slopes, what, margin=quantity.margin))
        claim = f"6. At equal training time momentum 0.9 raises {_named(quantity)}"
        gains = explained(measured, quantity, Points.by_momentum)
        made.append(judge(claim, gains, "doublings" if quantity is TOP else "gain in accuracy"))
    return made


def _costs(measured: Measured, division: str, rival: str, quantity: Quantity) -> dict[Unit, float]:
    """Federated minus central, averaged over settings and numbers of clients, for each seed."""
    gathered: dict[Unit, list[float]] = {}
    for line in measured.lines("federated"):
        central = Line("grid", line.data, line.model, line.setting)
        for name in measured.under(line.head):
            own, hands = name.split("/")
            clients, local = map(int, hands.split("x"))
            batch = clients * local if rival == "effective" else local
            if own != division or (rival == "local" and line.setting != "lr"):
                continue  # under LR/BS the rate follows the effective batch
            mine, yours = measured.at(line, name, quantity), measured.at(central, batch, quantity)
            for seed in mine.keys() & yours.keys():
                gathered.setdefault((line.data, line.model, seed), []).append(mine[seed] - yours[seed])
    return {unit: float(np.mean(values)) for unit, values in gathered.items()}


def _slopes(measured: Measured, setting: str, quantity: Quantity) -> dict[Unit, float]:
    return {
        (line.data, line.model, seed): own
        for line in measured.lines("grid")
        if line.setting == setting and not measured.spent(line, quantity)
        for seed, own in measured.slopes(line, quantity).items()
    }


def _gains(measured: Measured, setting: str, other: str, quantity: Quantity) -> dict[Unit, float]:
    """`other` minus `setting` at the same batch size and seed, averaged over batch sizes."""
    return _averaged(_pairs(measured, setting, other, quantity, lambda after, before, *_: after - before))


def _kept(measured: Measured, setting: str, other: str, quantity: Quantity) -> dict[Unit, float]:
    """The same for robust accuracy as a share of clean accuracy."""

    def gain(after: float, before: float, clean_after: float, clean_before: float) -> float:
        return _quotient(after, clean_after) - _quotient(before, clean_before)

    return _averaged(_pairs(measured, setting, other, quantity, gain))


def _pairs(
    measured: Measured, setting: str, other: str, quantity: Quantity, compare: Callable[..., float]
) -> dict[tuple[str, str, int, int], float]:
    """`compare` of both settings, quantity and clean accuracy, for each row, batch size and seed."""
    made = {}
    for line in measured.lines("grid"):
        if line.setting != setting:
            continue
        rival = Line(line.kind, line.data, line.model, other)
        if measured.spent(line, quantity) and measured.spent(rival, quantity):
            continue
        for batch in measured.batches(line):
            values = [measured.at(own, batch, q) for q in (quantity, CLEAN) for own in (rival, line)]
            for seed in sorted(set.intersection(*(set(own) for own in values))):
                made[line.data, line.model, batch, seed] = compare(*(own[seed] for own in values))
    return made


def _averaged(pairs: Mapping[tuple[str, str, int, int], float]) -> dict[Unit, float]:
    gathered: dict[Unit, list[float]] = {}
    for (data, model, _, seed), value in pairs.items():
        gathered.setdefault((data, model, seed), []).append(value)
    return {unit: float(np.mean(values)) for unit, values in gathered.items()}


def _quotient(robust: float, clean: float) -> float:
    """The share of right images that survive; attacks take a part of the test images, so it is cut at 1."""
    return min(1.0, robust / clean) if clean else 0.0


def _wins(measured: Measured, setting: str, other: str, quantity: Quantity) -> str:
    """In how many comparisons the larger momentum was ahead, ties left out."""
    pairs = _pairs(measured, setting, other, quantity, lambda after, before, *_: after - before)
    decided = [value for value in pairs.values() if value]
    if not decided:
        return ""
    share = proportion(sum(value > 0 for value in decided), len(decided))
    return f" (ahead in {share.value:.0%} of {share.n} decided comparisons)"


def _named(quantity: Quantity) -> str:
    return f"the {quantity.name}" if quantity is TOP else quantity.name
