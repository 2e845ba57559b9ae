"""What the paper claims of seconds, of what clients notice, of differential privacy, and of further uses."""

import math
from collections.abc import Iterator
from math import inf

from glasshouse.measures.estimate import Estimate, proportion
from glasshouse.studies.measured import Measured, apart
from glasshouse.studies.scale_mia import addresses, cells
from glasshouse.studies.scale_mia.addresses import Table3Cell
from glasshouse.studies.scale_mia.cells import ONLINE, PUBLISHED
from glasshouse.studies.scale_mia.layout import named
from glasshouse.studies.scale_mia.parts import above_guess, part, seeds_of
from glasshouse.studies.scale_mia.printed import HARDLY
from glasshouse.studies.scale_mia.rival_claims import ROBBING, SCALE_MIA, SEARCHES, ran, short
from glasshouse.verdicts.claims import Claim, Part

HUNDRED = 2.0
"""A hundred times, in powers of ten."""
USUAL_NOISE = "1"
"""The noise multiplier at which differential privacy is usually said to protect."""

STAIRCASE = (
    "Its rows have one direction and rising thresholds, as those of Robbing the Fed have. That no layer is "
    "added does not hide this from a client that looks at the weights."
)
HIDDEN = "Samples hide in differences of large sums, so that little noise is enough (and see H)."


def threat_claims(measured: Measured) -> list[Claim]:
    """A claim for each that the paper makes."""
    return [
        Claim(
            "A search takes more than a hundred times as long as Scale-MIA",
            list(_slower(measured)),
            section="sections 5.4, 6.2, Table 3",
            printed="87 to 462 s and 0.009 to 0.13 s",
        ),
        Claim(
            "Scale-MIA and Robbing the Fed rebuild a batch in well under a second",
            list(_fast(measured)),
            section="section 6.2, Table 3",
            printed="0.009 to 0.13 s and 0.18 to 0.23 s",
        ),
        Claim(
            "Scale-MIA is stealthier than attacks that change the architecture, such as Robbing the Fed",
            list(_stealthier(measured)),
            section="sections 1.2, 2.3, Table 2",
            printed="not measured",
            why={"refuted": STAIRCASE},
        ),
        Claim(
            f"Differential privacy does not stop it (noise multiplier {USUAL_NOISE})",
            list(private(measured, PUBLISHED)),
            section="section 7",
            printed="expected, left to future research",
            why={"refuted": HIDDEN},
        ),
        Claim(
            "In place of a search it improves attacks that single out one client's update",
            [Part("", "", [], [], barred="the paper does not measure it, and no cell does")],
            section="sections 5.5, 7",
            printed="not measured",
        ),
    ]


def _slower(measured: Measured) -> Iterator[Part]:
    """Where a shorter search is a hundred times slower, a longer one is too."""
    for search, spec in ran(measured, SEARCHES):
        ours = str(Table3Cell(search.network, SCALE_MIA, search.batch))
        mine, theirs = (
            seeds_of(measured, cell, attack, ONLINE)
            for cell, attack in ((ours, PUBLISHED), (str(search), spec))
        )
        ratios = [_powers(theirs[seed], mine[seed]) for seed in theirs if seed in mine]
        low = min((ratio.value or 0.0 for ratio in ratios), default=HUNDRED)
        yield part(
            measured,
            f"{named(search.network)}, {search.batch}",
            f"powers of ten between the seconds of {search.attack} and of Scale-MIA",
            ratios,
            [ours, str(search)],
            holds=(HUNDRED, inf),
            barred=short(search.attack, spec) if low < HUNDRED else "",
            form=".1f",
        )


def _powers(slow: Estimate, fast: Estimate) -> Estimate:
    """The logarithm of a ratio to the base of ten; its ends are those of the worst and the best case."""
    ends = [(slow.value, fast.value), (slow.low, fast.high), (slow.high, fast.low)]
    logs = [math.log10(above / below) if above and below else None for above, below in ends]
    middle, low, high = logs
    if middle is None or low is None:
        return Estimate(middle, None, None, slow.n)
    return Estimate(middle, low, middle + (middle - low) if high is None else high, slow.n)


def _fast(measured: Measured) -> Iterator[Part]:
    for cell, spec in ran(measured, (SCALE_MIA, ROBBING)):
        if cell.batch == 256 and spec in (PUBLISHED, ROBBING):
            yield part(
                measured,
                f"{named(cell.network)}, {cell.batch}",
                f"seconds of {cell.attack}",
                list(seeds_of(measured, str(cell), spec, ONLINE).values()),
                [str(cell)],
                spec,
                holds=(-inf, 1.0),
                form=".3f",
                unit="s",
            )


def _stealthier(measured: Measured) -> Iterator[Part]:
    """Of every model that was sent, whether a client that vets what it receives would have flagged it."""
    shares, seen = {}, []
    for attack in (ROBBING, PUBLISHED):
        alarms = {cell: measured.by_seed(cell, attack, cells.ALARM) for cell in measured.cells}
        flags = [flag for by_seed in alarms.values() for flag in by_seed.values()]
        shares[attack] = {0: proportion(round(sum(flags)), len(flags))} if flags else {}
        seen += [cell for cell, by_seed in alarms.items() if by_seed]
    yield Part(
        "all networks and data sets",
        "share of its models that vet flags, Robbing the Fed's minus Scale-MIA's",
        apart(shares[ROBBING], shares[PUBLISHED]),
        list(dict.fromkeys(seen)),
        refuted=(-inf, HARDLY),
    )


def private(measured: Measured, attack: str) -> Iterator[Part]:
    """The rate above the oracle's at the usual noise."""
    cell = addresses.varied(measured, "dp").get(USUAL_NOISE)
    if cell is not None:
        yield part(
            measured,
            f"noise {USUAL_NOISE}",
            f"rate of {attack} above the oracle's",
            above_guess(measured, cell, attack),
            [cell],
            attack,
        )
