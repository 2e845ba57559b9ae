"""The paper's figures, and charts of what goes beyond it; each attack under its own name."""

from collections.abc import Iterator, Mapping, Sequence
from itertools import repeat

from glasshouse.exhibits import Chart, Histogram, Picture, Series
from glasshouse.measures.estimate import Estimate, mean
from glasshouse.studies.measured import Measured
from glasshouse.studies.scale_mia import addresses, autoencoders, cells, printed
from glasshouse.studies.scale_mia.addresses import Figure6Cell, HeadsCell, Table4Cell
from glasshouse.studies.scale_mia.beyond import exact
from glasshouse.studies.scale_mia.cells import CODED, EXAMPLES, ORIGINALS, PEELED, PICTURED, PUBLISHED, RATE
from glasshouse.studies.scale_mia.layout import named, number, tried
from glasshouse.studies.showing import chart, series_of

NUMBERS = {"cifar10": "Figure 7: ", "fashion-mnist": "Figure 8: ", "hmnist": "Figure 9: "}
"""What the paper calls its pictures of the CNN."""

DRAWN = ("alexnet", "cnn", "mlp")
"""The networks that Figures 5 and 6 are drawn of: the paper's, or the first of these that was measured."""

VARIED = {
    "collisions": "batch",
    "dp": "noise multiplier",
    "quantisation": "bits",
    "local-steps": "local steps",
}


def charts(measured: Measured, histograms: Sequence[Histogram]) -> list[Chart]:
    """Everything that the finished cells allow."""
    rows = addresses.table_4(measured)
    drawn = [_rates(measured, *row, by_batch) for row, by_batch in rows.items() if len(by_batch) > 1]
    first = next((row for network in DRAWN for row in rows if row[0] == network), None)
    if first is not None:
        attacks = [name for name in (PUBLISHED, CODED) if name in tried(measured, list(rows[first].values()))]
        drawn += [_figure_5(histograms, *first, rows[first], attack) for attack in attacks]
    latents = Figure6Cell.matching(measured.cells)
    network = next((name for name in DRAWN if name in {cell.network for cell in latents}), None)
    drawn += [_figure_6(histograms, cell) for cell in latents if cell.network == network]
    if len(HeadsCell.matching(measured.cells)) > 1:
        drawn.append(_heads(measured))
    return drawn + [_varied(measured, name) for name in VARIED if len(addresses.varied(measured, name)) > 1]


def pictures(measured: Measured) -> Iterator[Picture]:
    """Figure 4: the first images of each batch of the CNN; Figures 7 to 9: the batches; then other networks'.

    As published where that can run, and else with our head; of the CNN with our head and collisions resolved
    too.
    """
    rows = list(addresses.table_4(measured))
    first = [row for row in rows if row[0] == "cnn"]
    yield from (picture for row in first for picture in _shown(measured, *row, (PUBLISHED,), EXAMPLES))
    for network, data in [*first, *(row for row in rows if row not in first)]:
        ran = measured.measure(str(Table4Cell(network, data, PICTURED)), PUBLISHED, RATE)
        attacks = (PUBLISHED, CODED, PEELED) if network == "cnn" else (PUBLISHED if ran else CODED,)
        yield from _shown(measured, network, data, attacks)


def _shown(
    measured: Measured, network: str, data: str, attacks: Sequence[str], examples: int | None = None
) -> Iterator[Picture]:
    """The batch of a row beside what each attack made of it, or its first images."""
    cell = str(Table4Cell(network, data, PICTURED))
    for attack in attacks:
        rate = measured.value(cell, attack, RATE)
        if rate is None:
            continue
        psnr = number(measured.value(cell, attack, cells.PSNR), cells.PSNR)
        folder = f"work/{cell}/seed-{measured.seeds[0]:04d}"
        figure = "Figure 4: " if examples else NUMBERS.get(data, "") if network == "cnn" else ""
        what = f"the first {examples} of a batch of {PICTURED}" if examples else f"a batch of {PICTURED}"
        yield Picture(
            cell=cell,
            adversary="blind crafting server",
            attack=attack,
            caption=f"{figure}{named(network)}, {data}, {what}",
            original=f"{folder}/{cells.sheet_name(attack, ORIGINALS, examples)}",
            result=f"{folder}/{cells.sheet_name(attack, cells.REBUILT, examples)}",
            note=f"{rate:.3f} of all such batches are recovered, with {psnr} dB; grey: nothing returned",
        )


def _rates(measured: Measured, network: str, data: str, by_batch: Mapping[int, str]) -> Chart:
    """Recovery rate against the batch size: printed, measured with each attack, and the bound."""
    paper = tuple(printed.table_4(network, data, batch).get(RATE) for batch in by_batch)
    series = [Series(name="scale-mia, printed", values=paper, printed=True)] if any(paper) else []
    attacks = measured.attacks(next(iter(by_batch.values())), RATE)
    series += [
        series_of(name, [measured.estimate(cell, attack, metric) for cell in by_batch.values()])
        for name, attack, metric in (
            *((f"{attack}, measured", attack, RATE) for attack in attacks),
            ("alone in their bin", None, cells.BOUND),
        )
    ]
    title = f"Table 4, {named(network)}, {data}: recovery rate by batch size, from an exact sum"
    return chart(f"rates-{network}-{data}", title, ("batch", "recovery rate"), map(str, by_batch), series)


def _figure_5(
    histograms: Sequence[Histogram], network: str, data: str, by_batch: Mapping[int, str], attack: str
) -> Chart:
    """How the PSNRs of all samples are distributed."""
    series = [
        series_of(f"batch {batch}", _shares(histograms, cell, attack, cells.PSNR_BINS))
        for batch, cell in by_batch.items()
    ]
    title = f"Figure 5: PSNR of all samples by batch size, {attack}, {named(network)}, {data}"
    note = "From 18 dB on a sample counts as recovered. The paper draws AlexNet on CIFAR-10."
    name = "figure-5" if attack == PUBLISHED else f"figure-5-{attack}"
    return chart(name, title, ("PSNR (dB)", "share of samples"), cells.PSNR_BINS, series, note=note)


def _figure_6(histograms: Sequence[Histogram], cell: Figure6Cell) -> Chart:
    """The latents' brightness and the laws that are fitted to it."""
    laws, bins = (autoencoders.LATENTS, *autoencoders.LAWS), autoencoders.BINS
    series = [series_of(law, _shares(histograms, str(cell), law, bins)) for law in laws]
    title = f"Figure 6: brightness of the latents, {named(cell.network)}, {cell.data}"
    return chart(f"figure-6-{cell.data}", title, ("standard deviations from the mean", "share"), bins, series)


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
    sums = {"exact sum": [exact(measured, batch) for batch in batches]}
    for bits in dict.fromkeys(cell.bits for cell in finished):
        sums[f"{bits} bits"] = [str(HeadsCell(bits, batch)) for batch in batches]
    series = [
        series_of(f"{spec}, {channel}", [measured.estimate(cell, spec, RATE) for cell in places])
        for channel, places in sums.items()
        for spec in (PUBLISHED, CODED)
    ]
    title = "Recovery rate as published and with our head, by batch size and channel"
    return chart("heads", title, ("batch", "recovery rate"), map(str, batches), series)


def _varied(measured: Measured, question: str) -> Chart:
    """Recovery rates of some attacks while one thing is varied."""
    by_value = addresses.varied(measured, question)
    series = [
        series_of(attack, [measured.estimate(cell, attack, RATE) for cell in by_value.values()])
        for attack in measured.attacks(next(iter(by_value.values())), RATE)
    ]
    what = VARIED[question]
    return chart(question, f"Recovery rate by {what}", (what, "recovery rate"), by_value, series)
