"""The paper's claims against what was measured.

Every claim about the gain of batches is judged twice: judging single records, as the authors' public code
does, and judging whole batches, as their Algorithm 1 reads; and each time in the paper's own metric, accuracy
where members are five or six times as many as others, and in balanced accuracy, whose chance is a half.
"""

import dataclasses
import math
from collections.abc import Sequence
from dataclasses import dataclass

from glasshouse.studies.measured import Measured, apart
from glasshouse.studies.mia_bad import cells
from glasshouse.studies.mia_bad.cells import FEDERATED, MODES, SAMPLE, TableCell, batch_batch, batch_sample
from glasshouse.studies.mia_bad.parts import (
    CENTRAL,
    FEWEST,
    MORE,
    MOST,
    NEGLIGIBLE,
    Attack,
    barred,
    gain_cells,
    gain_parts,
    leak,
    metrics,
    over_null,
    part_of,
    slope,
)
from glasshouse.verdicts.claims import Claim, Verdict, settle


@dataclass(frozen=True)
class Reading:
    """What batch-wise may mean, and why its gain may not be what the paper says."""

    words: str
    attack: Attack
    why: str = ""


SINGLE = Reading(
    "judging single records",
    batch_sample,
    "The attack model's input is one number, the loss, so learning from means of batches can only move its "
    "threshold. At the paper's mix a threshold that calls more records members scores more, whatever it "
    "knows; balanced accuracy does not reward that.",
)
WHOLE = Reading("judging whole batches", batch_batch)
READINGS = (SINGLE, WHOLE)
SHADOWS = (
    "The shadow models are trained in one place. A federated target that fits its data less has higher "
    "losses, which their threshold takes for those of others, the more so the less the means of batches vary."
)


def verdicts(measured: Measured) -> list[Verdict]:
    """A verdict on each claim of the paper, then on what the study asks beyond it."""
    rows = list(cells.table_rows(measured))
    claims = [_less_federated(measured, rows), _less_pronounced(measured, rows)]
    for make in (_better, _flat, _better_federated, _taken_away, _nothing_left, _fashion_most):
        claims += [make(measured, rows, reading) for reading in READINGS]
    numbered = [
        dataclasses.replace(claim, text=f"{number}. {claim.text}") for number, claim in enumerate(claims, 1)
    ]
    return settle([*numbered, *_own(measured, rows)])


def _less_federated(measured: Measured, rows: Sequence[TableCell]) -> Claim:
    parts = [
        part_of(
            measured,
            row,
            f"sample-wise {name}, central minus federated",
            apart(*(measured.seeds_of(row.at(way), SAMPLE, metric) for way in (CENTRAL, mode))),
            (row.at(CENTRAL), row.at(mode)),
            mode=mode,
        )
        for row in rows
        for mode in FEDERATED
        for name, metric in metrics(row)
    ]
    return Claim(
        "The attack gets less from a model that was trained in a federation",
        parts,
        section="section VI-B, Figure 4",
        printed="CIFAR-10: 0.833 central, 0.721 to 0.786 federated",
        why={"refuted": SHADOWS, "mixed": SHADOWS},
    )


def _less_pronounced(measured: Measured, rows: Sequence[TableCell]) -> Claim:
    parts = [
        part_of(
            measured,
            row,
            f"sample-wise {name}, 10 minus 2 clients",
            apart(*(measured.seeds_of(row.at(mode), SAMPLE, metric) for mode in (MOST, FEWEST))),
            (row.at(MOST), row.at(FEWEST)),
        )
        for row in rows
        for name, metric in metrics(row)
    ]
    why = (
        "At the same number of epochs more clients fit their data less, and what fits less leaks less. In "
        'the paper\'s metric always saying "member" scores 0.833, above all its federated numbers on '
        "CIFAR-10, so a rise towards it need not be a better attack."
    )
    return Claim(
        "With more clients this protection becomes less: the attack gets more from 10 than from 2 clients",
        parts,
        section="section VI-B, Figure 4",
        printed="CIFAR-10: 0.721, 0.769, 0.786 with 2, 5, 10 clients",
        why={"refuted": why, "mixed": why},
    )


def _better(measured: Measured, rows: Sequence[TableCell], reading: Reading) -> Claim:
    return Claim(
        f"Batch-wise is better, {reading.words}",
        [part for row in rows for part in gain_parts(measured, row, CENTRAL, reading.attack)],
        section="section VI-C, Table I",
        printed="CIFAR-10, central: 0.833 sample-wise, 0.853 to 0.869 batch-wise",
        why=_differing(reading.why),
    )


def _flat(measured: Measured, rows: Sequence[TableCell], reading: Reading) -> Claim:
    parts = [
        slope(measured, row, reading.attack, name, metric)
        for row in rows
        if len(cells.batch_sizes(measured, row)) > 2
        for name, metric in metrics(row)
    ]
    grows = "The mean of more losses varies less, so any score separates larger batches better."
    return Claim(
        f"The gain does not depend on the batch size, {reading.words}",
        parts,
        section="section VI-C, Table I",
        printed="CIFAR-10, central: 0.853 to 0.869, without a trend",
        why={word: grows for word in ("refuted", "mixed") if reading is WHOLE},
    )


def _better_federated(measured: Measured, rows: Sequence[TableCell], reading: Reading) -> Claim:
    parts = [
        part
        for row in rows
        if row.table == "table-2"
        for mode in FEDERATED
        for part in gain_parts(measured, row, mode, reading.attack)
    ]
    return Claim(
        f"Batch-wise is better in federations too, {reading.words}",
        parts,
        section="section VI-C, Table II",
        printed="+0.003 to +0.060 on MNIST, Fashion-MNIST and CIFAR-100",
        why=_differing(reading.why or SHADOWS),
    )


def _taken_away(measured: Measured, rows: Sequence[TableCell], reading: Reading) -> Claim:
    parts = []
    for row in rows:
        for name, metric in metrics(row):
            for more in (CENTRAL, FEWEST):
                both = [cells.gains(measured, row, mode, reading.attack, metric) for mode in (more, MOST)]
                what = f"gain in {name}, {more.replace('-', ' ')} minus 10 clients"
                named = gain_cells(measured, row, (more, MOST))
                parts.append(part_of(measured, row, what, apart(*both), named, fitting=(more, MOST)))
    none = "Where there is no gain with few clients, or in one place, more clients can take none away."
    return Claim(
        f"Federation takes the gain away, the more clients the more, {reading.words}",
        parts,
        section="section VI-D, Figure 5",
        printed="CIFAR-10: +0.026 central, +0.032, +0.001, -0.013 with 2, 5, 10 clients",
        why=_differing(none if reading is SINGLE else ""),
    )


def _nothing_left(measured: Measured, rows: Sequence[TableCell], reading: Reading) -> Claim:
    parts = [
        dataclasses.replace(part, holds=MORE, refuted=(NEGLIGIBLE, math.inf))
        for row in rows
        if row.data == "cifar10"
        for part in gain_parts(measured, row, MOST, reading.attack)
    ]
    return Claim(
        f"With 10 clients nothing of the gain is left on CIFAR-10, {reading.words}",
        parts,
        section="section VI-D, Figure 5",
        printed="-0.013",
        why=_differing(reading.why),
    )


def _fashion_most(measured: Measured, rows: Sequence[TableCell], reading: Reading) -> Claim:
    pairs = [
        (one, other)
        for one in rows
        for other in rows
        if one.data == "fashion-mnist" and other.data != one.data and other.model == one.model
    ]
    parts = []
    for one, other in pairs:
        for (name, mine), (_, theirs) in zip(metrics(one), metrics(other)):
            both = [
                cells.gains(measured, row, FEWEST, reading.attack, metric)
                for row, metric in ((one, mine), (other, theirs))
            ]
            named = [name for row in (one, other) for name in gain_cells(measured, row, (FEWEST,))]
            what = f"gain in {name}, 2 clients, above the other's"
            part = part_of(measured, one, what, apart(*both), named, fitting=(FEWEST,))
            where = f"fashion-mnist and {other.data}, {one.model}"
            reason = part.barred or barred(measured, other, (FEWEST,))
            parts.append(dataclasses.replace(part, where=where, barred=reason))
    return Claim(
        f"Of all data sets Fashion-MNIST has the greatest gain, {reading.words}",
        parts,
        section="section VI-D, Figure 5",
        printed="2 clients: +0.060; CIFAR-10 +0.032, CIFAR-100 +0.020, MNIST +0.008",
        why=_differing(reading.why),
    )


def _own(measured: Measured, rows: Sequence[TableCell]) -> list[Claim]:
    """What the study asks beyond the paper."""
    settings = [(row, mode) for row in rows for mode in FEDERATED]
    return [
        Claim(
            "A. Federation leaks less, whatever the threshold",
            [leak(measured, row, row.at(CENTRAL), mode) for row, mode in settings],
            own=True,
        ),
        Claim(
            "B. Federation leaks less than a central model that fits its training data as well",
            [leak(measured, row, row.matched(mode), mode) for row, mode in settings],
            own=True,
        ),
        Claim(
            "C. Judging whole batches finds more than averaging independent scores would",
            [over_null(measured, row, mode) for row in rows for mode in MODES],
            own=True,
        ),
    ]


def _differing(why: str) -> dict[str, str]:
    return {word: why for word in ("refuted", "mixed", "not shown") if why}
