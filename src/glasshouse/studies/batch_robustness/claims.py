"""The paper's four claims, one about federations and one about training time, against what was measured.

Models of one data set, network and seed share their images and first weights, so they are compared in pairs.
"""

from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import replace

import numpy as np

from glasshouse.measures.estimate import proportion
from glasshouse.studies.batch_robustness.measured import (
    CLEAN,
    FGSM,
    PGD,
    ROBUST,
    TOP,
    WEAK_FGSM,
    WEAK_PGD,
    Models,
    Points,
    Quantity,
    explained,
)
from glasshouse.studies.batch_robustness.printed import MOMENTUM, SCALED_MOMENTUM, SCHEDULES
from glasshouse.verdicts.claims import Unit, Verdict, judge, judge_flat

COMPARED = "lines where an attack leaves under 5% at every batch size are not compared"
COUNTEREXAMPLE = ("fashion-mnist", "stdcnn")
HEAVY = {"lr": MOMENTUM[-1].name, "lr-bs": SCALED_MOMENTUM.name}
"""Schedules without momentum, and with momentum 0.9."""


def verdicts(measured: Models) -> list[Verdict]:
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


def _learning(measured: Models) -> Iterator[Verdict]:
    """Models that say nothing about robustness, and are in none of the comparisons below."""
    if measured.collapsed:
        counts = Counter(cell.rpartition("/")[0] for cell, _ in measured.collapsed)
        named = ", ".join(f"{count} of {line}" for line, count in counts.items())
        reason = f"{len(measured.collapsed)} of {measured.count} did not, and are left out below: {named}"
        yield Verdict("0. Every model learns more than its most frequent class", "refuted", reason)


def _flatness(measured: Models) -> Iterator[Verdict]:
    """Claim 1, and the weaker one that LR/BS is at least flatter than LR."""
    for quantity in (CLEAN, *ROBUST, TOP):
        slopes = _slopes(measured, "lr-bs", quantity)
        claim = f"1. LR/BS keeps {_named(quantity)} flat in the batch size"
        what = f"change with each doubling (flat: within {quantity.margin:g})"
        yield judge_flat(claim, slopes, what, margin=quantity.margin, where=COMPARED)
    for quantity in (CLEAN, *ROBUST, TOP):
        fixed, scaled = (_slopes(measured, schedule, quantity) for schedule in ("lr", "lr-bs"))
        gains = {unit: abs(fixed[unit]) - abs(scaled[unit]) for unit in fixed if unit in scaled}
        claim = f"1. LR/BS keeps {_named(quantity)} flatter than a fixed rate does"
        what = "steepness under LR minus that under LR/BS, each doubling"
        yield judge(claim, gains, what, where=COMPARED)


def _counterexample(measured: Models) -> Iterator[Verdict]:
    """Claim 2: StdCNN on Fashion-MNIST at a fixed rate."""
    for kind, longer in (("grid", ""), ("longer", " when trained four times as long")):
        if COUNTEREXAMPLE not in [
            (line.data, line.model) for line in measured.lines(kind) if line.schedule == "lr"
        ]:
            continue
        for quantity in (*ROBUST, TOP):
            slopes = _slopes(measured, "lr", quantity, kind)
            slopes = {unit: slope for unit, slope in slopes.items() if unit[:2] == COUNTEREXAMPLE}
            claim = f"2. StdCNN on Fashion-MNIST under LR: {_named(quantity)} rises with the batch{longer}"
            yield judge(claim, slopes, "change with each doubling", where=COMPARED)


def _explanation(measured: Models) -> Iterator[Verdict]:
    """Whether robustness falls where curvature rises, along the batch sizes of a line."""
    for quantity in (FGSM, PGD, WEAK_PGD):
        opposed: list[tuple[Unit, float]] = []
        for line in measured.lines("grid"):
            rho = measured.correlation(line, TOP, quantity).value
            if rho is not None and not measured.spent(line, quantity):
                opposed.append(((line.data, line.model, 0), -rho))
        claim = f"2. Where curvature is higher along the batch sizes, {_named(quantity)} is lower"
        what = "minus the rank correlation, averaged over a row's settings"
        yield judge(claim, _averaged(opposed), what, where=COMPARED)


def _momentum(measured: Models) -> Iterator[Verdict]:
    """Claims 3 and 4: momentum 0.9 against none, in pairs, averaged over batch sizes."""
    for schedule in HEAVY:
        how = SCHEDULES[schedule].words
        gains = _averaged(_gains(measured, schedule, TOP))
        falls = {unit: -gain for unit, gain in gains.items()}
        claim = f"3. Momentum 0.9 lowers the top eigenvalue under {how}"
        yield judge(claim, falls, "halvings of the top eigenvalue")
        for quantity in ROBUST:
            pairs = _gains(measured, schedule, quantity)
            claim = f"4. Momentum 0.9 raises {_named(quantity)} under {how}"
            yield judge(claim, _averaged(pairs), f"gain in accuracy{_wins(pairs)}", where=COMPARED)
    for quantity in (PGD, WEAK_PGD):
        kept = _averaged(_gains(measured, "lr", quantity, of_clean=True))
        claim = f"4. Momentum 0.9 raises {_named(quantity)} under LR, relative to clean accuracy"
        yield judge(claim, kept, "gain in that share", where=COMPARED)


def _federation(measured: Models) -> list[Verdict]:
    """Whether FedAvg is as robust as training in one place, for as many epochs, at the same learning rate."""
    judged = []
    for division in dict.fromkeys(address.division for address in measured.federated):
        for effective, words in (
            (False, "a central model with a client's batch"),
            (True, "a central model with all clients' batches as one"),
        ):
            for quantity in (CLEAN, PGD, WEAK_PGD, TOP):
                costs = _costs(measured, division, effective, quantity)
                what = "doublings, federated minus central" if quantity is TOP else "federated minus central"
                claim = f"5. FedAvg ({division}) has a higher {quantity.name} than {words}"
                judged.append(judge(claim, costs, what))
    return [verdict for verdict in judged if verdict.verdict != "open"] or judged[:1]


def _training_time(measured: Models) -> Iterator[Verdict]:
    """Whether it all comes down to how far training has gone, and what is left beside that."""
    for quantity in (CLEAN, PGD, WEAK_PGD, TOP):
        claim = f"6. Training time, lr x steps / (1 - m), explains {_named(quantity)} better than batch size"
        gains = explained(measured, quantity, Points.gain_of_time)
        yield judge(claim, gains, "difference of the shares of variance that each explains alone")
    for quantity in (WEAK_FGSM, WEAK_PGD, TOP):
        claim = f"6. At equal training time a larger batch leaves {_named(quantity)} as it is"
        what = f"change with each doubling (flat: within {quantity.margin:g})"
        slopes = explained(measured, quantity, Points.by_batch)
        yield judge_flat(claim, slopes, what, margin=quantity.margin)
        claim = f"6. At equal training time momentum 0.9 raises {_named(quantity)}"
        gains = explained(measured, quantity, Points.by_momentum)
        yield judge(claim, gains, "doublings" if quantity is TOP else "gain in accuracy")


def _costs(measured: Models, division: str, effective: bool, quantity: Quantity) -> dict[Unit, float]:
    """Federated minus central, averaged over schedules and numbers of clients, for each seed."""
    pairs: list[tuple[Unit, float]] = []
    for address in measured.federated:
        if address.division != division or (address.schedule != "lr" and not effective):
            continue  # under LR/BS the rate follows the effective batch
        batch = address.clients * address.batch if effective else address.batch
        mine, yours = measured.at(address, quantity), measured.at(address.line.at(batch), quantity)
        pairs += [
            ((address.data, address.model, seed), mine[seed] - yours[seed])
            for seed in mine.keys() & yours.keys()
        ]
    return _averaged(pairs)


def _slopes(measured: Models, schedule: str, quantity: Quantity, kind: str = "grid") -> dict[Unit, float]:
    slopes: dict[Unit, float] = {}
    for line in measured.lines(kind):
        if line.schedule == schedule and not measured.spent(line, quantity):
            slopes |= measured.slopes(line, quantity)
    return slopes


def _gains(
    measured: Models, schedule: str, quantity: Quantity, *, of_clean: bool = False
) -> list[tuple[Unit, float]]:
    """Momentum 0.9 minus none at each batch size and seed, of robust accuracy also as a share `of_clean`."""
    gains: list[tuple[Unit, float]] = []
    for line in measured.lines("grid"):
        heavy = replace(line, schedule=HEAVY[schedule])
        if line.schedule != schedule or (measured.spent(line, quantity) and measured.spent(heavy, quantity)):
            continue
        for batch in measured.batches(line):
            after, before, clean_after, clean_before = (
                measured.at(side.at(batch), which) for which in (quantity, CLEAN) for side in (heavy, line)
            )
            for seed in sorted(after.keys() & before.keys() & clean_after.keys() & clean_before.keys()):
                gain = after[seed] - before[seed]
                if of_clean:
                    gain = _share(after[seed], clean_after[seed]) - _share(before[seed], clean_before[seed])
                gains.append(((line.data, line.model, seed), gain))
    return gains


def _averaged(values: Iterable[tuple[Unit, float]]) -> dict[Unit, float]:
    """The mean of each unit's values."""
    gathered: dict[Unit, list[float]] = {}
    for unit, value in values:
        gathered.setdefault(unit, []).append(value)
    return {unit: float(np.mean(of_unit)) for unit, of_unit in gathered.items()}


def _share(robust: float, clean: float) -> float:
    """The share of right images that survive; attacks take a part of the test images, so it is cut at 1."""
    return min(1.0, robust / clean) if clean else 0.0


def _wins(gains: Iterable[tuple[Unit, float]]) -> str:
    """In how many comparisons the larger momentum is ahead, ties left out."""
    decided = [gain for _, gain in gains if gain]
    if not decided:
        return ""
    share = proportion(sum(gain > 0 for gain in decided), len(decided))
    return f" (ahead in {share.value:.0%} of {share.n} decided comparisons)"


def _named(quantity: Quantity) -> str:
    return f"the {quantity.name}" if quantity is TOP else quantity.name
