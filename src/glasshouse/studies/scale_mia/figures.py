"""The paper's figures, and charts of what goes beyond it."""

from itertools import pairwise

from glasshouse.exhibits import Chart, Picture, Series
from glasshouse.studies.scale_mia import brightness
from glasshouse.studies.scale_mia.cells import PEELED, PUBLISHED, sheet_name
from glasshouse.studies.scale_mia.measured import Measured
from glasshouse.studies.scale_mia.printed import table_4
from glasshouse.studies.scale_mia.rows import BOUND, EDGES, psnr_bin
from glasshouse.studies.scale_mia.spelling import PSNR, RATE, named, number
from glasshouse.studies.showing import series_of

PICTURED = 64
FIGURES = {"cifar10": "Figure 7", "fashion-mnist": "Figure 8", "hmnist": "Figure 9"}
DRAWN = ("alexnet", "cnn", "mlp")
"""The networks that Figures 5 and 6 are drawn of: the paper's, or the first of these that was measured."""


def charts(measured: Measured) -> list[Chart]:
    """Everything that the finished cells allow."""
    made = [_rates(measured, *row) for row in measured.rows() if len(measured.batches(*row)) > 1]
    network = next((own for own in DRAWN if own in {row[0] for row in measured.rows()}), None)
    if network is not None:
        data = next(data for own, data in measured.rows() if own == network)
        made.append(_figure_5(measured, network, data))
    drawn = next((own for own in DRAWN if measured.under(f"figure-6/{own}")), None)
    if drawn is not None:
        made += [_figure_6(measured, drawn, data) for data in measured.under(f"figure-6/{drawn}")]
    for head, x in (("collisions", "batch"), ("dp", "noise multiplier"), ("quantisation", "bits")):
        if len(measured.under(head)) > 1:
            made.append(_varied(measured, head, x))
    return made


def pictures(measured: Measured) -> list[Picture]:
    """Figures 7 to 9 (and 4, their first rows): a batch beside what was made of it.

    Of the first network also with collisions resolved.
    """
    made = []
    for network, data in measured.rows():
        cell = f"table-4/{network}/{data}/{PICTURED}"
        first = network == measured.rows()[0][0]
        for attack in (PUBLISHED, PEELED) if first else (PUBLISHED,):
            psnr = measured.value(cell, attack, PSNR)
            if measured.measure(cell, attack, RATE) is None:
                continue
            folder = f"work/{cell}/seed-{measured.seeds[0]:04d}"
            own = FIGURES.get(data) if network == "cnn" else None
            made.append(
                Picture(
                    cell=cell,
                    adversary="blind crafting server",
                    attack=attack,
                    caption=f"{f'{own}: ' if own else ''}{named(network)}, {data}, a batch of {PICTURED}",
                    original=f"{folder}/{sheet_name(attack, 'originals')}",
                    result=f"{folder}/{sheet_name(attack, 'rebuilt')}",
                    note=f"recovered ones have {number(psnr, PSNR)} dB; grey stands for nothing returned",
                )
            )
    return made


def _rates(measured: Measured, network: str, data: str) -> Chart:
    """Recovery rate against the batch size: printed, measured, with collisions resolved, and the bound."""
    batches = measured.batches(network, data)
    cells = [f"table-4/{network}/{data}/{batch}" for batch in batches]
    paper = tuple(table_4(network, data, batch).get(RATE) for batch in batches)
    series = [Series(name="as published, printed", values=paper, printed=True)] if any(paper) else []
    series += [
        series_of("as published, measured", [measured.estimate(cell, PUBLISHED, RATE) for cell in cells]),
        series_of("collisions resolved", [measured.estimate(cell, PEELED, RATE) for cell in cells]),
        series_of("alone in their bin", [measured.estimate(cell, None, BOUND) for cell in cells]),
    ]
    return Chart(
        name=f"rates-{network}-{data}",
        title=f"Table 4, {named(network)}, {data}: recovery rate by batch size",
        x="batch",
        y="recovery rate",
        categories=tuple(map(str, batches)),
        series=tuple(series),
    )


def _figure_5(measured: Measured, network: str, data: str) -> Chart:
    """How the PSNRs of all samples are distributed."""
    metrics = [psnr_bin(low, high) for low, high in pairwise(EDGES)]
    series = [
        series_of(
            f"batch {batch}",
            [measured.estimate(f"table-4/{network}/{data}/{batch}", PUBLISHED, metric) for metric in metrics],
        )
        for batch in measured.batches(network, data)
    ]
    return Chart(
        name="figure-5",
        title=f"Figure 5: PSNR of all samples by batch size, {named(network)}, {data}",
        x="PSNR (dB)",
        y="share of samples",
        categories=tuple(f"{low}\N{EN DASH}{high}" for low, high in pairwise(EDGES)),
        series=tuple(series),
        note="From 18 dB on a sample counts as recovered. The paper draws AlexNet on CIFAR-10.",
    )


def _figure_6(measured: Measured, network: str, data: str) -> Chart:
    """The latents' brightness and the laws that are fitted to it."""
    cell, bins = f"figure-6/{network}/{data}", brightness.bins()
    series = [
        series_of(law, [measured.estimate(cell, law, name) for name in bins])
        for law in (brightness.SEEN, *brightness.LAWS)
    ]
    return Chart(
        name=f"figure-6-{data}",
        title=f"Figure 6: brightness of the latents, {named(network)}, {data}",
        x="standard deviations from the mean",
        y="share",
        categories=tuple(bins),
        series=tuple(series),
    )


def _varied(measured: Measured, head: str, x: str) -> Chart:
    names = measured.under(head)
    attacks = list(dict.fromkeys(own for name in names for own in measured.attacks(f"{head}/{name}")))
    series = [
        series_of(attack, [measured.estimate(f"{head}/{name}", attack, RATE) for name in names])
        for attack in attacks
    ]
    return Chart(
        name=head,
        title=f"Recovery rate by {x}",
        x=x,
        y="recovery rate",
        categories=tuple(names),
        series=tuple(series),
    )
