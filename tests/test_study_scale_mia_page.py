import pytest
from scale_mia_findings import alone, rate, refused, row

from glasshouse.exhibits import Exhibits, Histogram
from glasshouse.report.run import read_run
from glasshouse.store import write_json
from glasshouse.studies.scale_mia.autoencoders import BINS, DECODABLE, DECODED, DISTANCE, LATENTS, LAWS
from glasshouse.studies.scale_mia.cells import (
    ALARM,
    CODED,
    DRAWN,
    HEADS,
    PEELED,
    PSNR_BINS,
    PUBLISHED,
)
from glasshouse.studies.scale_mia.grid import ScaleMIAStudy
from glasshouse.studies.scale_mia.scales import SCALES

METRICS = ("psnr-of-recovered", "psnr-of-returned", "ssim", "offline-seconds", "online-seconds")
TWO_LAYERS = ("resnet", "vit")


def attacks_of(name):
    """The attacks that a cell tries."""
    kind, network, *_ = name.split("/")
    if kind == "table-3" and "scale-mia" not in name:
        return [name.split("/")[2]]
    if kind == "table-3" or kind == "table-4":
        return [*HEADS, PEELED] if network in ("cnn", "mlp") else [PUBLISHED, CODED]
    if kind in ("heads", "weights"):
        return [*HEADS]
    return [PUBLISHED, CODED] if kind in ("dp", "local-steps", "table-5", "table-7") else [CODED, PEELED]


def made_up(scale):
    """Findings for every cell of a scale, all metrics that its tables show."""
    for cell in ScaleMIAStudy().cells(scale):
        kind, network, *_ = cell.name.split("/")
        if kind == "figure-6":
            yield from (row(cell.name, law, DISTANCE, 0.1) for law in LAWS)
            continue
        if kind == "autoencoder":
            yield from (row(cell.name, None, metric, 0.9) for metric in (DECODED, DECODABLE))
            continue
        yield from alone(cell.name, 0.6)
        for spec in attacks_of(cell.name):
            if spec == PUBLISHED and network in TWO_LAYERS:
                yield from refused(cell.name)
                continue
            printed = 0.9 if kind == "table-4" and spec == PUBLISHED else None
            yield from rate(cell.name, 0.61, spec, printed=printed)
            yield from (row(cell.name, spec, metric, 25.0, 0.01) for metric in METRICS)
            yield row(cell.name, spec, ALARM, 1.0)


def histogram(cell, attack, quantity, bins, share=0.1):
    return Histogram(
        cell=cell, seed=0, attack=attack, quantity=quantity, bins=bins, shares=(share,) * len(bins)
    )


def made_up_histograms(findings):
    """A histogram for each that the cells of these findings leave."""
    for cell in dict.fromkeys(finding.cell for finding in findings):
        if cell.startswith("figure-6"):
            yield from (histogram(cell, law, "brightness", BINS) for law in (LATENTS, *LAWS))
        elif cell.startswith("table-4"):
            yield from (histogram(cell, attack, "psnr", PSNR_BINS) for attack in (PUBLISHED, CODED))


def shown(findings, folder):
    """The page of the study as the report reads it, checked on the way."""
    own = ScaleMIAStudy().present(findings, Exhibits(histograms=tuple(made_up_histograms(findings))))
    write_json(folder / "results.json", [finding.row() for finding in findings])
    write_json(
        folder / "study.json",
        {
            "tables": [table.model_dump() for table in own.tables],
            "charts": [chart.model_dump() for chart in own.charts],
        },
    )
    write_json(folder / "curves.json", {"gallery": [exhibit.model_dump() for exhibit in own.gallery]})
    return read_run(folder)


@pytest.mark.parametrize("scale", SCALES)
def test_tables_charts_and_pictures_fit_the_page_at_every_scale(scale, tmp_path):
    run = shown(list(made_up(scale)), tmp_path)
    names = {table.name for table in run.study.tables}
    assert {"table-3", "table-4-rate", "table-4-psnr", "table-5", "table-6", "table-7", "table-8"} <= names
    expected = {
        "collisions",
        "dp",
        "quantisation",
        "local-steps",
        "laws",
        "fits",
        "vetting",
        "heads",
        "weights",
    }
    assert expected <= names
    assert {"autoencoders", "table-4-quality"} <= names
    charts = {chart.name for chart in run.study.charts}
    assert {"figure-5", f"figure-5-{CODED}", "collisions", "dp", "quantisation", "heads"} <= charts
    of_cnn = [row for row in SCALES[scale].rows if row.scenario.network == "cnn" and 64 in row.batches]
    others = [row for row in SCALES[scale].rows if row.scenario.network != "cnn" and 64 in row.batches]
    assert len(run.curves.gallery) == 4 * len(of_cnn) + len(others)


def test_the_papers_pictures_are_those_of_the_published_attack(tmp_path):
    gallery = shown(list(made_up("laptop")), tmp_path).curves.gallery
    figures = {picture.caption.partition(":")[0]: picture for picture in reversed(gallery)}
    assert {"Figure 4", "Figure 7", "Figure 8", "Figure 9"} <= set(figures)
    assert {figures[f"Figure {number}"].attack for number in (4, 7, 8, 9)} == {PUBLISHED}
    first = [picture for picture in gallery if picture.caption.startswith("Figure 4")]
    assert [picture.cell.split("/")[2] for picture in first] == ["cifar10", "fashion-mnist", "hmnist"]
    assert "first-8-originals" in first[0].original
    assert {picture.attack for picture in gallery if "resnet" in picture.cell} == {CODED}


def test_nothing_but_the_published_attack_goes_by_its_name(tmp_path):
    run = shown(list(made_up("laptop")), tmp_path)
    known = {
        *(PUBLISHED, DRAWN, CODED, PEELED, "alone in their bin", "scale-mia, printed"),
        *(f"{attack}, measured" for attack in (PUBLISHED, DRAWN, CODED, PEELED)),
    }
    for chart in run.study.charts:
        if chart.name.startswith(("rates", "collisions", "dp", "quantisation")):
            assert {series.name for series in chart.series} <= known
    for table in run.study.tables:
        if "attack" in table.columns:
            place = table.columns.index("attack")
            assert not {str(line[place]) for line in table.rows} & {"Scale-MIA", "Scale-MIA, coded"}


def test_figure_5_shows_the_mean_share_over_seeds_with_an_interval():
    cell = "table-4/cnn/cifar10/64"
    shares = [histogram(cell, PUBLISHED, "psnr", PSNR_BINS, share) for share in (0.1, 0.2, 0.3)]
    charts = ScaleMIAStudy().present(rate(cell, 0.6), Exhibits(histograms=tuple(shares))).charts
    (series,) = next(chart for chart in charts if chart.name == "figure-5").series
    # t(2) = 4.3027 standard errors of the mean of three values that deviate by 0.1
    assert series.values == pytest.approx([0.2] * len(PSNR_BINS))
    assert series.high == pytest.approx([0.2 + 4.3027 * 0.1 / 3**0.5] * len(PSNR_BINS), rel=1e-4)


def test_printed_and_measured_stand_side_by_side(tmp_path):
    tables = {table.name: table for table in shown(list(made_up("laptop")), tmp_path).study.tables}
    rates = tables["table-4-rate"]
    assert rates.columns == ("network (k)", "data", "attack", "64", "128", "256", "512", "1024")
    lines = {line[:3]: line[3:] for line in rates.rows}
    assert len({line[:2] for line in lines}) == len(SCALES["laptop"].rows)
    assert lines["cnn (1024)", "cifar10", PUBLISHED][4].startswith("0.495 / 0.610 [")
    assert lines["cnn (1024)", "cifar10", CODED][4].startswith("0.610 [")
    assert lines["resnet (512)", "cifar10", PUBLISHED][0] == "0.916 / no gradient"
    assert lines["vit (512)", "cifar10", CODED][4] == "\N{EN DASH}"
    assert "pass" in rates.note
    rivals = {line[:3]: line[3:] for line in tables["table-3"].rows}
    assert rivals["inverting-gradients", "cnn (1024)", "seconds"][1].startswith("\N{EN DASH} / 25.000")
    assert rivals["inverting-gradients", "resnet (512)", "seconds"][0].startswith("86.893 / 25.000")
    assert rivals["dlg", "cnn (1024)", "seconds"][0].startswith("117.394 / 25.000")
    published = rivals[PUBLISHED, "resnet (512)", "PSNR of the recovered (dB)"]
    assert published[0] == "21.2 / no gradient"
    assert rivals[CODED, "resnet (512)", "PSNR of the recovered (dB)"][0].startswith("\N{EN DASH} / 25.0")
    starved = {
        line[:3]: dict(zip(tables["table-5"].columns[3:], line[3:])) for line in tables["table-5"].rows
    }
    assert starved["alexnet (512)", "16", PUBLISHED]["0.01"].startswith("0.981 / 0.61")
    assert starved["cnn (1024)", "16", PUBLISHED]["0.03"].startswith("\N{EN DASH} / 0.61")
    assert starved["cnn (1024)", "16", CODED]["1"].startswith("0.61")
    heads = {line[:2]: line for line in tables["heads"].rows}
    assert heads["exact", "64"][2] == "0.900"
    assert heads["22 bits", "64"][2] == "\N{EN DASH}"


def test_a_part_of_the_study_shows_what_it_has(tmp_path):
    part = [found for found in made_up("smoke") if found.cell.startswith("dp/")]
    run = shown(part, tmp_path)
    assert [table.name for table in run.study.tables] == ["dp", "vetting"]
    assert [chart.name for chart in run.study.charts] == ["dp"]
