"""What the paper claims of the attacker's images (Tables 5 to 8) and of the latents' law (Figure 6)."""

from collections.abc import Iterator
from itertools import product
from math import inf

from glasshouse.measures.estimate import Estimate
from glasshouse.studies.measured import Measured, apart
from glasshouse.studies.scale_mia import addresses, printed
from glasshouse.studies.scale_mia.addresses import Figure6Cell, StarvedCell
from glasshouse.studies.scale_mia.autoencoders import DISTANCE, LAWS
from glasshouse.studies.scale_mia.cells import PSNR, PUBLISHED, RATE
from glasshouse.studies.scale_mia.layout import named, starved_cell
from glasshouse.studies.scale_mia.parts import (
    SHARE,
    above_guess,
    mean_difference,
    part,
    place,
    seeds_of,
    untrained,
    untrained_on_one,
)
from glasshouse.studies.scale_mia.printed import HARDLY
from glasshouse.verdicts.claims import Claim, Part, Region
from glasshouse.verdicts.seeds import UNBOUNDED

SLIGHT = 5.0
"""A fall of the PSNR by less than so many dB is slight: the largest that is printed is 4.6."""
NEAR = 0.1
"""A law that misses no share of the latents by more than this is easy to estimate."""
NORMAL = LAWS[0]
UNLIKE = ("resnet", "vit", "vgg")
"""The networks in which the paper finds HMNIST harder."""

ALIKE = (
    "The CNN's autoencoder gains little from more images: trained as long on 500 of them, it rebuilds others "
    "about as well (see the table of autoencoders)."
)
HMNIST = "The paper describes 5,000 grey images of 8 classes; here it is HAM10000, in colour."


def auxiliary_claims(measured: Measured) -> list[Claim]:
    """A claim for each that the paper makes."""
    hardly: Region = (-inf, HARDLY)
    return [
        Claim(
            f"The number of auxiliary images hardly matters to the rate (a fall below {HARDLY:g})",
            list(_falls(measured, 5, RATE, hardly, (HARDLY, inf))),
            section="section 6.4, Table 5",
            printed="AlexNet at 16, 64, 256: 0.981, 0.909, 0.687 with 1%, 0.983, 0.915, 0.731 with all",
        ),
        Claim(
            f"With fewer auxiliary images the PSNR falls slightly (by less than {SLIGHT:g} dB)",
            list(_falls(measured, 5, PSNR, (0.0, SLIGHT), None)),
            section="section 6.4, Table 6",
            printed="AlexNet at 64: 24.9, 25.1, 27.6, 29.1 dB with 1%, 3%, 10%, all",
            why={"refuted": ALIKE, "mixed": ALIKE},
        ),
        Claim(
            f"The number of classes it has images of hardly matters to the rate (a fall below {HARDLY:g})",
            list(_falls(measured, 7, RATE, hardly, (HARDLY, inf))),
            section="section 6.4, Table 7",
            printed="AlexNet at 64: 0.898, 0.913, 0.897, 0.915 with 1, 2, 3, 10",
        ),
        Claim(
            f"With fewer classes the PSNR falls, but not much (by less than {SLIGHT:g} dB)",
            list(_falls(measured, 7, PSNR, (0.0, SLIGHT), None)),
            section="section 6.4, Table 8",
            printed="AlexNet at 64: 24.8, 24.8, 25.2, 29.1 dB with 1, 2, 3, 10",
            why={"refuted": ALIKE, "mixed": ALIKE},
        ),
        Claim(
            "An attacker with images of one class recovers those of this class",
            list(_targeted(measured)),
            section="sections 5.5, 6.4, Table 7",
            printed="AlexNet: 0.982 at 16, 0.898 at 64, 0.691 at 256",
        ),
        Claim(
            f"The latents' brightness follows a normal or a Laplace law (no share off by more than {NEAR:g})",
            list(_laws(measured)),
            section="sections 5.4, 6.3, Figure 6",
            printed="a figure of AlexNet, without numbers",
        ),
        Claim(
            "HMNIST's brightness is less normal than that of the other data sets",
            list(_peaked(measured)),
            section="section 6.3, Figure 6",
            printed="a figure of AlexNet, without numbers",
            why=dict.fromkeys(("refuted", "mixed", "not shown"), HMNIST),
        ),
        Claim(
            "With ViT, ResNet and VGG less is recovered of HMNIST than of the other data sets",
            list(_harder(measured)),
            section="section 6.3, Table 4",
            printed="at 64: 0.773 and 0.957, 0.943 (VGG), 0.825 and 0.916, 0.905 (ResNet)",
            why=dict.fromkeys(("refuted", "mixed", "not shown"), HMNIST),
        ),
    ]


def _falls(
    measured: Measured, table: int, metric: str, holds: Region, refuted: Region | None
) -> Iterator[Part]:
    """How much higher it is with everything than with an amount, on average over the batch sizes."""
    done = StarvedCell.matching(measured.cells)
    networks = dict.fromkeys(cell.network for cell in done)
    for network, amount in product(networks, printed.AMOUNTS[table][:-1]):
        batches = [cell.batch for cell in done if cell == StarvedCell(table, network, amount, cell.batch)]
        most = max(printed.AMOUNTS[table])
        pairs = [
            (str(starved_cell(table, network, most, batch)), str(StarvedCell(table, network, amount, batch)))
            for batch in batches
        ]
        if not pairs:
            continue
        rate = metric == RATE
        yield part(
            measured,
            f"{named(network)}, {granted(table, amount)}",
            f"fall of the {'rate' if rate else 'PSNR of the recovered'} from what all images give",
            mean_difference(measured, pairs, PUBLISHED, metric),
            [cell for pair in pairs for cell in pair],
            holds=holds,
            refuted=refuted,
            barred=_untrained(measured, table, network, amount),
            form="+.3f" if rate else "+.2f",
            unit="" if rate else "dB",
        )


def granted(table: int, amount: float) -> str:
    """What the attacker of a column has, in words."""
    if table == 5:
        return f"{amount:.0%} of the images"
    return f"{amount:.0f} class{'es' if amount > 1 else ''}"


def _untrained(measured: Measured, table: int, network: str, amount: float) -> str:
    of = f"{amount:g}" if table == 5 else f"{amount:.0f}-classes"
    return untrained_on_one(measured, network) or untrained_on_one(measured, network, of)


def _targeted(measured: Measured) -> Iterator[Part]:
    for cell in StarvedCell.matching(measured.cells):
        if (cell.table, cell.amount) == (7, 1.0):
            yield part(
                measured,
                f"{named(cell.network)}, {cell.batch}",
                "recovery rate above the oracle's",
                above_guess(measured, str(cell), PUBLISHED),
                [str(cell)],
                barred=_untrained(measured, 7, cell.network, 1.0),
            )


def _laws(measured: Measured) -> Iterator[Part]:
    """The law of the two that fits better."""
    for cell in Figure6Cell.matching(measured.cells):
        gaps = {law: measured.value(str(cell), law, DISTANCE) for law in LAWS}
        known = {law: gap for law, gap in gaps.items() if gap is not None}
        if known:
            better = min(known, key=lambda law: known[law])
            yield _of_latents(
                measured,
                cell,
                f"distance from the {better} law",
                list(seeds_of(measured, str(cell), better, DISTANCE).values()),
                [str(cell)],
                (-inf, NEAR),
            )


def _of_latents(
    measured: Measured, cell: Figure6Cell, what: str, seeds: list[Estimate], named: list[str], holds: Region
) -> Part:
    return part(
        measured,
        place(cell.network, cell.data),
        what,
        seeds,
        named,
        holds=holds,
        barred=untrained(measured, cell.network, cell.data),
        bounds=SHARE if holds[1] < inf else UNBOUNDED,
        form=".3f" if holds[1] < inf else "+.3f",
    )


def _peaked(measured: Measured) -> Iterator[Part]:
    done = Figure6Cell.matching(measured.cells)
    for cell in done:
        hmnist = Figure6Cell(cell.network, "hmnist")
        if cell.data != "hmnist" and hmnist in done:
            gaps = [seeds_of(measured, str(one), NORMAL, DISTANCE) for one in (hmnist, cell)]
            what = "distance of HMNIST's latents from their normal law minus that of this data set's"
            yield _of_latents(measured, cell, what, apart(*gaps), [str(hmnist), str(cell)], (0.0, inf))


def _harder(measured: Measured) -> Iterator[Part]:
    rows = addresses.table_4(measured)
    for network, data in rows:
        of_hmnist = rows.get((network, "hmnist"), {})
        pairs = [
            (cell, of_hmnist[batch]) for batch, cell in rows[network, data].items() if batch in of_hmnist
        ]
        if network in UNLIKE and data != "hmnist" and pairs:
            yield part(
                measured,
                place(network, data),
                "rate on this data set minus that on HMNIST, mean over batches",
                mean_difference(measured, pairs, PUBLISHED),
                [cell for pair in pairs for cell in pair],
                barred=untrained(measured, network, data) or untrained(measured, network, "hmnist"),
            )
