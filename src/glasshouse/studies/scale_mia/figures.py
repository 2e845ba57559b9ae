"""The paper's figures, and charts of what goes beyond it."""

from collections.abc import Iterator, Mapping, Sequence
from itertools import repeat

from glasshouse.exhibits import Chart, Histogram, Picture, Series
from glasshouse.measures.estimate import Estimate, mean
from glasshouse.studies.measured import Measured
from glasshouse.studies.scale_mia import cells, printed
from glasshouse.studies.scale_mia.cells import (
    CODED,
    PEELED,
    PICTURED,
    RATE,
    Figure6Cell,
    HeadsCell,
    Table4Cell,
)
from glasshouse.studies.scale_mia.layout import named, number
from glasshouse.studies.showing import chart, series_of

NUMBERS = {"cifar10": "Figure 7: ", "fashion-mnist": "Figure 8: ", "hmnist": "Figure 9: "}
"""What the paper calls its pictures of the CNN."""

DRAWN = ("alexnet", "cnn", "mlp")
"""The networks that Figures 5 and 6 are drawn of: the paper's, or the first of these that was measured."""

VARIED = {"collisions": "batch", "dp": "noise multiplier", "quantisation": "bits"}


def charts(measured: Measured, histograms: Sequence[Histogram]) -> list[Chart]:
    """Everything that the finished cells allow."""
    rows = cells.table_4(measured)
    drawn = [_rates(measured, *row, by_batch) for row, by_batch in rows.items() if len(by_batch) > 1]
    first = next((row for network in DRAWN for row in rows if row[0] == network), None)
    if first is not None:
        drawn.append(_figure_5(histograms, *first, rows[first]))
    latents = Figure6Cell.matching(measured.cells)
    network = next((name for name in DRAWN if name in {cell.network for cell in latents}), None)
    drawn += [_figure_6(histograms, cell) for cell in latents if cell.network == network]
    if len(HeadsCell.matching(measured.cells)) > 1:
        drawn.append(_heads(measured))
    return drawn + [_varied(measured, name) for name in VARIED if len(cells.varied(measured, name)) > 1]


def pictures(measured: Measured) -> Iterator[Picture]:
    """Figures 7 to 9 (and 4, their first rows): a batch beside what was made of it.

    Of the first network also with collisions resolved.
    """
    rows = cells.table_4(measured)
    for network, data in rows:
        cell = str(Table4Cell(network, data, PICTURED))
        first = network == next(iter(rows))[0]
        for attack in (CODED, PEELED) if first else (CODED,):
            if measured.measure(cell, attack, RATE) is None:
                continue
            psnr = number(measured.value(cell, attack, cells.PSNR), cells.PSNR)
            folder = f"work/{cell}/seed-{measured.seeds[0]:04d}"
            figure = NUMBERS.get(data, "") if network == "cnn" else ""
            yield Picture(
                cell=cell,
                adversary="blind crafting server",
                attack=attack,
                caption=f"{figure}{named(network)}, {data}, a batch of {PICTURED}",
                original=f"{folder}/{cells.sheet_name(attack, 'originals')}",
                result=f"{folder}/{cells.sheet_name(attack, 'rebuilt')}",
                note=f"recovered ones have {psnr} dB; grey stands for nothing returned",
            )


def _rates(measured: Measured, network: str, data: str, by_batch: Mapping[int, str]) -> Chart:
    """Recovery rate against the batch size: printed, measured, with collisions resolved, and the bound."""
    paper = tuple(printed.table_4(network, data, batch).get(RATE) for batch in by_batch)
    series = [Series(name="as published, printed", values=paper, printed=True)] if any(paper) else []
    series += [
        series_of(name, [measured.estimate(cell, attack, metric) for cell in by_batch.values()])
        for name, attack, metric in (
            ("scale-mia-coded, measured", CODED, RATE),
            ("collisions resolved", PEELED, RATE),
            ("alone in their bin", None, cells.BOUND),
        )
    ]
    title = f"Table 4, {named(network)}, {data}: recovery rate by batch size"
    return chart(f"rates-{network}-{data}", title, ("batch", "recovery rate"), map(str, by_batch), series)


def _figure_5(histograms: Sequence[Histogram], network: str, data: str, by_batch: Mapping[int, str]) -> Chart:
    """How the PSNRs of all samples are distributed."""
    series = [
        series_of(f"batch {batch}", _shares(histograms, cell, CODED, cells.PSNR_BINS))
        for batch, cell in by_batch.items()
    ]
    title = f"Figure 5: PSNR of all samples by batch size, {named(network)}, {data}"
    note = "From 18 dB on a sample counts as recovered. The paper draws AlexNet on CIFAR-10."
    return chart("figure-5", title, ("PSNR (dB)", "share of samples"), cells.PSNR_BINS, series, note=note)


def _figure_6(histograms: Sequence[Histogram], cell: Figure6Cell) -> Chart:
    """The latents' brightness and the laws that are fitted to it."""
    laws = (cells.LATENTS, *cells.LAWS)
    series = [series_of(law, _shares(histograms, str(cell), law, cells.BINS)) for law in laws]
    title = f"Figure 6: brightness of the latents, {named(cell.network)}, {cell.data}"
    axes = ("standard deviations from the mean", "share")
    return chart(f"figure-6-{cell.data}", title, axes, cells.BINS, series)


def _shares(
    histograms: Sequence[Histogram], cell: str, attack: str, bins: Sequence[str]
) -> Sequence[Estimate | None]:
    """The share of each bin: with several seeds their mean and its t interval."""
    seeds = [shown for shown in histograms if (shown.cell, shown.attack) == (cell, attack)]
    if not seeds:
        return [None] * len(bins)
    if len(seeds) > 1:
        return [mean(shares) for shares in zip(*(shown.shares for shown in seeds))]
    (only,) = seeds
    ends = zip(only.low, only.high) if only.low else repeat((None, None))
    return [Estimate(share, low, high, only.n or 0) for share, (low, high) in zip(only.shares, ends)]


def _heads(measured: Measured) -> Chart:
    """Recovery rate against the batch size: the published head and ours, from exact and from rounded sums."""
    finished = HeadsCell.matching(measured.cells)
    batches = sorted({cell.batch for cell in finished})
    series = [
        series_of(
            f"{spec}, {channel}{'' if channel == cells.IDEAL else ' bits'}",
            [measured.estimate(str(HeadsCell(channel, batch)), spec, RATE) for batch in batches],
        )
        for channel in dict.fromkeys(cell.channel for cell in finished)
        for spec in (cells.PUBLISHED, CODED)
    ]
    title = "Recovery rate as published and with our head, by batch size and channel"
    return chart("heads", title, ("batch", "recovery rate"), map(str, batches), series)


def _varied(measured: Measured, question: str) -> Chart:
    """Recovery rates of some attacks while one thing is varied."""
    by_value = cells.varied(measured, question)
    series = [
        series_of(attack, [measured.estimate(cell, attack, RATE) for cell in by_value.values()])
        for attack in cells.attacks(measured, by_value.values())
    ]
    what = VARIED[question]
    return chart(question, f"Recovery rate by {what}", (what, "recovery rate"), by_value, series)
