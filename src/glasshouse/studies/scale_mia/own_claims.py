"""What the study asks beyond the paper: real sums, our head, collisions resolved, and attackers who know."""

import dataclasses
from collections.abc import Iterator, Sequence
from math import inf

from glasshouse.studies.measured import Measured, apart, less
from glasshouse.studies.scale_mia import addresses, printed
from glasshouse.studies.scale_mia.addresses import HeadsCell, Table4Cell
from glasshouse.studies.scale_mia.beyond import exact
from glasshouse.studies.scale_mia.cells import BOUND, CODED, DRAWN, PEELED, PUBLISHED, RATE
from glasshouse.studies.scale_mia.parts import above_guess, no_room, part, row_part, seeds_of
from glasshouse.studies.scale_mia.printed import HARDLY
from glasshouse.studies.scale_mia.rival_claims import better
from glasshouse.studies.scale_mia.threat_claims import USUAL_NOISE, private
from glasshouse.verdicts.claims import ABOVE, Claim, Part

BITS = (22, 16)
"""The bits of an entry that protocols use by default, and fewer."""
CLOSE = 0.03
STOPPED = (-inf, 0.0)
"""What is stopped finds no more than the oracle."""


def own_claims(measured: Measured) -> list[Claim]:
    """A question of our own for each letter."""
    usual, fewer = BITS
    asked = [
        Claim(
            f"A. Does secure aggregation with entries of {usual} bits stop it as published?",
            list(_stopped(measured, PUBLISHED, usual)),
        ),
        Claim(
            f"B. Do {usual} bits stop it with the last layer drawn, as in the authors' code?",
            list(_stopped(measured, DRAWN, usual)),
        ),
        Claim(
            f"C. Does our head find as much through {usual} and {fewer} bits as the published one in an "
            f"exact sum (to {HARDLY:g})?",
            [part for bits in BITS for part in _brought_back(measured, bits)],
        ),
        Claim(
            f"D. Are the rates those of Table 4 with the last layer drawn (to {CLOSE:g})?",
            list(_as_printed(measured)),
        ),
        Claim(
            "E. Does our head recover large batches, of networks with two linear layers too?",
            list(_large_batches(measured)),
        ),
        Claim(
            "F. Are samples that share a bin found by who measures several directions?",
            list(_resolved(measured)),
        ),
        Claim("G. Does our head rebuild images better than all searches?", list(better(measured, CODED))),
        Claim(
            f"H. Does who knows the clipping get past differential privacy (noise {USUAL_NOISE})?",
            [part for spec in _knowing(measured) for part in private(measured, spec)],
        ),
        Claim(
            "I. Does it work where clients take several local steps, as in federated averaging?",
            list(_several_steps(measured)),
        ),
        Claim(
            "J. Does it find less, as published, where clients send how their weights changed (over "
            f"{HARDLY:g} less)?",
            list(_rounded_weights(measured)),
        ),
    ]
    return [dataclasses.replace(claim, own=True) for claim in asked]


def _stopped(measured: Measured, attack: str, bits: int) -> Iterator[Part]:
    for cell in HeadsCell.matching(measured.cells):
        if cell.bits == bits:
            yield part(
                measured,
                f"batch of {cell.batch}",
                "recovery rate above the oracle's",
                above_guess(measured, str(cell), attack),
                [str(cell)],
                attack,
                holds=STOPPED,
                refuted=ABOVE,
            )


def _brought_back(measured: Measured, bits: int) -> Iterator[Part]:
    for cell in HeadsCell.matching(measured.cells):
        if cell.bits == bits:
            pair = str(cell), exact(measured, cell.batch)
            gains = apart(*(seeds_of(measured, one, spec) for one, spec in zip(pair, (CODED, PUBLISHED))))
            yield part(
                measured,
                f"{bits} bits, {cell.batch}",
                "rate of our head minus that of the published one in an exact sum",
                gains,
                pair,
                CODED,
                holds=(-HARDLY, inf),
            )


def _as_printed(measured: Measured) -> Iterator[Part]:
    for cell in Table4Cell.matching(measured.cells):
        known = printed.table_4(cell.network, cell.data, cell.batch).get(RATE)
        gaps = [] if known is None else less(seeds_of(measured, str(cell), DRAWN).values(), known)
        if gaps:
            region = (-CLOSE, CLOSE)
            yield row_part(measured, cell, "rate minus the printed one", gaps, DRAWN, holds=region)


def _large_batches(measured: Measured) -> Iterator[Part]:
    for cell in Table4Cell.matching(measured.cells):
        if cell.batch >= 512:
            yield row_part(
                measured,
                cell,
                "recovery rate above the oracle's",
                above_guess(measured, str(cell), CODED),
                CODED,
                barred=no_room(measured, str(cell), CODED),
            )


def _resolved(measured: Measured) -> Iterator[Part]:
    """Where about half as many samples as neurons meet: beyond 0.8 of them no direction helps."""
    for cell in Table4Cell.matching(measured.cells):
        alone = measured.value(str(cell), None, BOUND) or 0.0
        resolved = seeds_of(measured, str(cell), PEELED)
        if resolved and 0.5 < alone < 0.7:
            gains = apart(resolved, seeds_of(measured, str(cell), PUBLISHED))
            what = "rate with several directions minus that as published"
            yield row_part(measured, cell, what, gains, PEELED, holds=(HARDLY, inf))


def _knowing(measured: Measured) -> Sequence[str]:
    """The attacks with a norm."""
    found = addresses.varied(measured, "dp").get(USUAL_NOISE, "")
    return [spec for spec in measured.attacks(found, RATE) if "norm" in spec]


def _several_steps(measured: Measured) -> Iterator[Part]:
    for steps, cell in addresses.varied(measured, "local-steps").items():
        for attack in (PUBLISHED, CODED):
            if steps != "1":
                yield part(
                    measured,
                    f"{steps} steps" if steps.isdigit() else steps,
                    f"rate of {attack} above the oracle's",
                    above_guess(measured, cell, attack),
                    [cell],
                    attack,
                )


def _rounded_weights(measured: Measured) -> Iterator[Part]:
    for batch, cell in addresses.varied(measured, "weights").items():
        pair = cell, exact(measured, int(batch))
        yield part(
            measured,
            f"batch of {batch}",
            "rate where weights are sent minus that of gradients",
            apart(*(seeds_of(measured, one, PUBLISHED) for one in pair)),
            pair,
            holds=(-inf, -HARDLY),
        )
