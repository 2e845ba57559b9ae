"""The paper's four claims, one about federations and one about training time, against what was measured.

Models of one data set, network and seed share their images and first weights, so they are compared in pairs.
"""

from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import replace
from itertools import product

import numpy as np

from glasshouse.studies.batch_robustness import measured
from glasshouse.studies.batch_robustness.measured import CLEAN, PGD, ROBUST, TOP, WEAK_PGD, Models, Quantity
from glasshouse.studies.batch_robustness.printed import HEAVY, SCALED_HEAVY, SCHEDULES
from glasshouse.studies.measured import differences
from glasshouse.verdicts.claims import Unit, Verdict, judge, judge_flat

COMPARED = "lines where an attack leaves under 5% at every batch size are not compared"
COUNTEREXAMPLE = ("fashion-mnist", "stdcnn")
WITH_MOMENTUM = {"lr": HEAVY.name, "lr-bs": SCALED_HEAVY.name}
"""Schedules without momentum, and with momentum 0.9."""
CENTRAL = {False: "a client's batch", True: "all clients' batches as one"}
"""What a federation is compared with; the second is its effective batch."""


def verdicts(models: Models) -> list[Verdict]:
    """A verdict on each claim, for each quantity that it is about."""
    return [
        *_learning(models),
        *_flatness(models),
        *_counterexample(models),
        *_explanation(models),
        *_momentum(models),
        *_federation(models),
        *_training_time(models),
    ]


def _learning(models: Models) -> Iterator[Verdict]:
    """Models that say nothing about robustness, and are in none of the comparisons below."""
    if models.collapsed:
        counts = Counter(cell.rpartition("/")[0] for cell, _ in models.collapsed)
        named = ", ".join(f"{count} of {line}" for line, count in counts.items())
        reason = f"{len(models.collapsed)} of {models.count} did not, and are left out below: {named}"
        yield Verdict("0. Every model learns more than its most frequent class", "refuted", reason)


def _flatness(models: Models) -> Iterator[Verdict]:
    """Claim 1, and the weaker one that LR/BS is at least flatter than LR."""
    for quantity in (CLEAN, *ROBUST, TOP):
        slopes = _slopes(models, "lr-bs", quantity)
        claim = f"1. LR/BS keeps {_named(quantity)} flat in the batch size"
        what = f"change with each doubling (flat: within {quantity.margin:g})"
        yield judge_flat(claim, slopes, what, margin=quantity.margin, where=COMPARED)
    for quantity in (CLEAN, *ROBUST, TOP):
        fixed, scaled = (_slopes(models, schedule, quantity) for schedule in ("lr", "lr-bs"))
        gains = {unit: abs(fixed[unit]) - abs(scaled[unit]) for unit in fixed if unit in scaled}
        claim = f"1. LR/BS keeps {_named(quantity)} flatter than a fixed rate does"
        what = "steepness under LR minus that under LR/BS, each doubling"
        yield judge(claim, gains, what, where=COMPARED)


def _counterexample(models: Models) -> Iterator[Verdict]:
    """Claim 2: StdCNN on Fashion-MNIST at a fixed rate."""
    for kind, longer in (("grid", ""), ("longer", " when trained four times as long")):
        line = measured.Line(kind, *COUNTEREXAMPLE, "lr")
        for quantity in (*ROBUST, TOP) if models.batches(line) else ():
            slopes = {} if models.spent(line, quantity) else models.slopes(line, quantity)
            claim = f"2. StdCNN on Fashion-MNIST under LR: {_named(quantity)} rises with the batch{longer}"
            yield judge(claim, slopes, "change with each doubling", where=COMPARED)


def _explanation(models: Models) -> Iterator[Verdict]:
    """Whether robustness falls where curvature rises, along the batch sizes of a line."""
    for quantity in (measured.FGSM, PGD, WEAK_PGD):
        opposed: list[tuple[Unit, float]] = []
        for line in models.lines("grid"):
            rho = models.correlation(line, TOP, quantity).value
            if rho is not None and not models.spent(line, quantity):
                opposed.append(((line.data, line.model, 0), -rho))
        claim = f"2. Where curvature is higher along the batch sizes, {_named(quantity)} is lower"
        what = "minus the rank correlation, averaged over a row's settings"
        yield judge(claim, _averaged(opposed), what, where=COMPARED)


def _momentum(models: Models) -> Iterator[Verdict]:
    """Claims 3 and 4: momentum 0.9 against none, in pairs, averaged over batch sizes."""
    for schedule in WITH_MOMENTUM:
        how = SCHEDULES[schedule].words
        gains = _averaged(_gains(models, schedule, TOP))
        falls = {unit: -gain for unit, gain in gains.items()}
        claim = f"3. Momentum 0.9 lowers the top eigenvalue under {how}"
        yield judge(claim, falls, "halvings of the top eigenvalue")
        for quantity in ROBUST:
            pairs = _gains(models, schedule, quantity)
            claim = f"4. Momentum 0.9 raises {_named(quantity)} under {how}"
            yield judge(claim, _averaged(pairs), f"gain in accuracy{_wins(pairs)}", where=COMPARED)
    for quantity in (PGD, WEAK_PGD):
        kept = _averaged(_gains(models, "lr", quantity, of_clean=True))
        claim = f"4. Momentum 0.9 raises {_named(quantity)} under LR, relative to clean accuracy"
        yield judge(claim, kept, "gain in that share", where=COMPARED)


def _federation(models: Models) -> list[Verdict]:
    """Whether FedAvg is as robust as training in one place, for as many epochs, at the same learning rate."""
    judged = []
    divisions = dict.fromkeys(address.division for address in models.federated)
    for division, (effective, words) in product(divisions, CENTRAL.items()):
        for quantity in (CLEAN, PGD, WEAK_PGD, TOP):
            what = "doublings, federated minus central" if quantity is TOP else "federated minus central"
            claim = f"5. FedAvg ({division}) has a higher {quantity.name} than a central model with {words}"
            judged.append(judge(claim, _costs(models, division, effective, quantity), what))
    return [verdict for verdict in judged if verdict.verdict != "open"] or judged[:1]


def _training_time(models: Models) -> Iterator[Verdict]:
    """Whether it all comes down to how far training has gone, and what is left beside that."""
    for quantity in (CLEAN, PGD, WEAK_PGD, TOP):
        claim = f"6. Training time, lr x steps / (1 - m), explains {_named(quantity)} better than batch size"
        gains = measured.explained(models, quantity, measured.Points.gain_of_time)
        yield judge(claim, gains, "difference of the shares of variance that each explains alone")
    for quantity in (measured.WEAK_FGSM, WEAK_PGD, TOP):
        claim = f"6. At equal training time a larger batch leaves {_named(quantity)} as it is"
        what = f"change with each doubling (flat: within {quantity.margin:g})"
        slopes = measured.explained(models, quantity, measured.Points.by_batch)
        yield judge_flat(claim, slopes, what, margin=quantity.margin)
        claim = f"6. At equal training time momentum 0.9 raises {_named(quantity)}"
        gains = measured.explained(models, quantity, measured.Points.by_momentum)
        yield judge(claim, gains, "doublings" if quantity is TOP else "gain in accuracy")


def _costs(models: Models, division: str, effective: bool, quantity: Quantity) -> dict[Unit, float]:
    """Federated minus central, averaged over schedules and numbers of clients, for each seed."""
    pairs: list[tuple[Unit, float]] = []
    for address in models.federated:
        if address.division != division or (address.schedule != "lr" and not effective):
            continue  # under LR/BS the rate follows the effective batch
        batch = address.clients * address.batch if effective else address.batch
        gains = differences(models.at(address, quantity), models.at(address.line.at(batch), quantity))
        pairs += [((address.data, address.model, seed), gain) for seed, gain in gains.items()]
    return _averaged(pairs)


def _slopes(models: Models, schedule: str, quantity: Quantity) -> dict[Unit, float]:
    slopes: dict[Unit, float] = {}
    for line in models.lines("grid"):
        if line.schedule == schedule and not models.spent(line, quantity):
            slopes |= models.slopes(line, quantity)
    return slopes


def _gains(
    models: Models, schedule: str, quantity: Quantity, *, of_clean: bool = False
) -> list[tuple[Unit, float]]:
    """Momentum 0.9 minus none at each batch size and seed, of robust accuracy also as a share `of_clean`."""
    gains: list[tuple[Unit, float]] = []
    for line in models.lines("grid"):
        heavy = replace(line, schedule=WITH_MOMENTUM[schedule])
        if line.schedule != schedule or (models.spent(line, quantity) and models.spent(heavy, quantity)):
            continue
        for batch in models.batches(line):
            after, before = (models.at(side.at(batch), quantity) for side in (heavy, line))
            if of_clean:
                after = _shares(after, models.at(heavy.at(batch), CLEAN))
                before = _shares(before, models.at(line.at(batch), CLEAN))
            apart = differences(after, before)
            gains += [((line.data, line.model, seed), apart[seed]) for seed in sorted(apart)]
    return gains


def _averaged(values: Iterable[tuple[Unit, float]]) -> dict[Unit, float]:
    """The mean of each unit's values."""
    gathered: dict[Unit, list[float]] = {}
    for unit, value in values:
        gathered.setdefault(unit, []).append(value)
    return {unit: float(np.mean(of_unit)) for unit, of_unit in gathered.items()}


def _shares(robust: dict[int, float], clean: dict[int, float]) -> dict[int, float]:
    """The share of right images that survive; attacks take a part of the test images, so it is cut at 1."""
    return {
        seed: min(1.0, robust[seed] / clean[seed]) if clean[seed] else 0.0 for seed in robust if seed in clean
    }


def _wins(gains: Iterable[tuple[Unit, float]]) -> str:
    """In how many comparisons the larger momentum is ahead, ties left out."""
    decided = [gain for _, gain in gains if gain]
    ahead = sum(gain > 0 for gain in decided) / max(1, len(decided))
    return f" (ahead in {ahead:.0%} of {len(decided)} decided comparisons)" if decided else ""


def _named(quantity: Quantity) -> str:
    return f"the {quantity.name}" if quantity is TOP else quantity.name
