import pytest

from glasshouse.exhibits import Exhibits, Histogram
from glasshouse.findings import Finding
from glasshouse.report.run import read_run
from glasshouse.store import write_json
from glasshouse.studies.scale_mia.cells import (
    BINS,
    BOUND,
    CODED,
    DISTANCE,
    DRAWN,
    HEADS,
    LATENTS,
    LAWS,
    PEELED,
    PSNR_BINS,
    PUBLISHED,
)
from glasshouse.studies.scale_mia.grid import SCALES, ScaleMIAStudy


def row(cell, attack, metric, value, low=None, high=None, n=100, chance=None, model="cnn", data="cifar10"):
    return Finding(
        source="scale-mia", cell=cell, family="reconstruction", attack=attack, metric=metric, value=value,
        low=low, high=high, n=n, chance=chance, model=model, data=data, seed=0,
    )  # fmt: skip


def verdict_on(findings, start):
    (found,) = [one for one in ScaleMIAStudy().conclude(findings) if one.claim.startswith(start)]
    return found


def rates(cell, attack, value, spread=0.01, chance=0.02):
    return [
        row(cell, attack, "recovery-rate", value, value - spread, value + spread, chance=chance),
        row(cell, attack, "psnr", 20.0),
    ]


def test_without_cells_every_claim_is_open():
    assert {one.verdict for one in ScaleMIAStudy().conclude([])} == {"open"}


@pytest.mark.parametrize(("at_512", "verdict"), [
    ((0.7, 0.6, 0.65), "holds"),
    ((0.0, 0.01, 0.0), "refuted"),
    ((0.0, 0.04, 0.02), "not shown"),
    ((0.7,), "open"),
])  # fmt: skip
def test_large_batches_are_judged_against_the_blind_guess(at_512, verdict):
    findings = [
        found
        for data, value in zip(("cifar10", "fashion-mnist", "hmnist"), at_512)
        for found in rates(f"table-4/cnn/{data}/512", CODED, value)
    ]
    assert verdict_on(findings, "Large batches").verdict == verdict


@pytest.mark.parametrize(("starved", "verdict"), [(0.88, "holds"), (0.7, "refuted"), (0.85, "not shown")])
@pytest.mark.parametrize(
    ("head", "claim"), [("table-5/0.01", "The number of aux"), ("table-7/1", "Knowing one")]
)
def test_starved_attackers_are_judged_by_how_much_the_rate_falls(head, claim, starved, verdict):
    findings = []
    for batch in (16, 64):
        findings += rates(f"table-5/1/{batch}", CODED, 0.9) + rates(f"{head}/{batch}", CODED, starved)
    found = verdict_on(findings, claim)
    assert found.verdict == verdict
    assert f"{0.9 - starved:+.3f}" in found.reason


@pytest.mark.parametrize(
    ("flags", "verdict"), [([1.0] * 8, "refuted"), ([0.0] * 8, "holds"), ([1.0, 0.0], "not shown")]
)
def test_stealth_is_judged_by_what_a_client_flags(flags, verdict):
    findings = [row(f"table-3/{CODED}/{k}", CODED, "vet-alarm", flag) for k, flag in enumerate(flags)]
    findings += [row(f"table-3/robbing-the-fed/{k}", "robbing-the-fed", "vet-alarm", 1.0) for k in range(8)]
    assert verdict_on(findings, "Scale-MIA is stealthier").verdict == verdict


def rivalry(spec, batch, rate=0.0, psnr=10.0, seconds=100.0):
    """What a rival reached in its cell of Table 3; a blind guess recovers 0.02."""
    cell = f"table-3/{spec.partition('(')[0]}/{batch}"
    measured = {"psnr-of-returned": psnr, "online-seconds": seconds}
    return [*rates(cell, spec, rate), *(row(cell, spec, metric, value) for metric, value in measured.items())]


SHORT = "(steps=10)"


@pytest.mark.parametrize(("effort", "small", "large", "verdict"), [
    ("", 0.9, 0.0, "holds"),
    ("", 0.9, 0.5, "refuted"),
    ("", 0.0, 0.0, "not shown"),
    (SHORT, 0.9, 0.0, "open"),
    (SHORT, 0.9, 0.5, "refuted"),
    (SHORT, 0.0, 0.0, "open"),
])  # fmt: skip
def test_that_searches_fail_in_large_batches_is_not_concluded_from_short_ones(effort, small, large, verdict):
    spec = f"gradinversion{effort}"
    findings = rivalry(spec, 1, small) + rivalry(spec, 16, large)
    assert verdict_on(findings, "Searches in one").verdict == verdict
    assert verdict_on(findings[:4], "Searches in one").verdict == "open"


@pytest.mark.parametrize(("effort", "theirs", "verdict"), [
    ("", 10.0, "holds"), ("", 30.0, "refuted"), (SHORT, 10.0, "open"), (SHORT, 30.0, "refuted"),
])  # fmt: skip
def test_scale_mia_is_compared_with_the_best_search_at_each_batch_size(effort, theirs, verdict):
    findings = []
    for batch, more in ((1, 0.0), (2, 0.1), (4, 0.2)):
        findings += rivalry(CODED, batch, psnr=20.0) + rivalry("dlg", batch, psnr=5.0)
        findings += rivalry(f"inverting-gradients{effort}", batch, psnr=theirs + more)
    found = verdict_on(findings, "Scale-MIA rebuilds")
    assert found.verdict == verdict
    assert f"{3 if effort else 0} of 6 searches took fewer steps" in found.reason


@pytest.mark.parametrize(("effort", "seconds", "verdict"), [
    ("", 100.0, "holds"), ("", 2.0, "refuted"), (SHORT, 100.0, "holds"), (SHORT, 2.0, "open"),
])  # fmt: skip
def test_searches_are_timed_against_the_slower_closed_form(effort, seconds, verdict):
    findings = []
    for batch, more in ((1, 0.0), (2, 0.1), (4, 0.2)):
        findings += rivalry(CODED, batch, seconds=0.01) + rivalry("robbing-the-fed", batch, seconds=0.1)
        findings += rivalry(f"fishing{effort}", batch, seconds=seconds + more)
    assert verdict_on(findings, "A search takes").verdict == verdict


@pytest.mark.parametrize(("rate", "verdict"), [(0.6, "holds"), (0.011, "refuted"), (0.05, "not shown")])
def test_privacy_is_judged_at_the_usual_noise(rate, verdict):
    findings = rates("dp/0", CODED, 0.9) + rates("dp/1", CODED, 0.01) + rates("dp/1", "quiet", rate)
    found = verdict_on(findings, "Differential privacy")
    assert found.verdict == verdict
    assert ("works without noise only" in found.reason) == (verdict != "holds")


@pytest.mark.parametrize(("peeled", "verdict"), [(0.98, "refuted"), (0.6, "holds"), (0.635, "not shown")])
def test_collisions_are_judged_where_a_third_of_the_samples_collide(peeled, verdict):
    findings = []
    for batch, alone in ((64, 0.94), (512, 0.607)):
        cell = f"table-4/cnn/cifar10/{batch}"
        findings += rates(cell, CODED, 0.61, 0.02) + rates(cell, PEELED, peeled, 0.02)
        findings.append(row(cell, None, BOUND, alone))
    found = verdict_on(findings, "Samples that meet")
    assert found.verdict == verdict
    assert "at 512" in found.reason


def heads(published, coded, exact=(0.947, 0.823, 0.677)):
    """Rates at 64, 256 and 512: as published from the exact sum, and of both heads from one of 22 bits."""
    findings = []
    for batch, ideal, stopped, ours in zip((64, 256, 512), exact, published, coded):
        findings += rates(f"heads/ideal/{batch}", PUBLISHED, ideal, chance=0.1)
        findings += rates(f"heads/22/{batch}", PUBLISHED, stopped, chance=0.1)
        findings += rates(f"heads/22/{batch}", DRAWN, 0.6) + rates(f"heads/22/{batch}", CODED, ours)
    return findings


@pytest.mark.parametrize(("exact", "verdict"), [
    ((0.947, 0.843, 0.7), "holds"), ((0.8, 0.7, 0.5), "refuted"), ((0.93, 0.813, 0.68), "not shown"),
])  # fmt: skip
def test_the_published_head_is_judged_against_the_printed_rates_of_an_exact_sum(exact, verdict):
    found = verdict_on(heads((0.5, 0.1, 0.0), (0.9, 0.8, 0.7), exact), "As published it recovers")
    assert found.verdict == verdict
    assert f"{exact[1]:.3f} for 0.846 at 256" in found.reason


@pytest.mark.parametrize(
    ("published", "verdict"),
    [((0.5, 0.05, 0.0), "holds"), ((0.5, 0.3, 0.2), "refuted"), ((0.0, 0.1, 0.1), "not shown")],
)
def test_quantisation_is_judged_by_what_is_left_in_large_batches(published, verdict):
    found = verdict_on(heads(published, (0.9, 0.8, 0.7)), "Quantised secure aggregation")
    assert found.verdict == verdict
    assert f"{published[0]:.3f} at 64" in found.reason
    assert "as in the authors' code 0.600 at 64" in found.reason


@pytest.mark.parametrize(
    ("coded", "verdict"),
    [((0.95, 0.83, 0.7), "holds"), ((0.5, 0.4, 0.3), "refuted"), ((0.9, 0.77, 0.63), "not shown")],
)
def test_a_better_attacker_is_compared_with_the_published_one_in_an_exact_sum(coded, verdict):
    assert verdict_on(heads((0.5, 0.05, 0.0), coded), "A better attacker").verdict == verdict


def made_up(scale):
    """Findings for every cell of a scale, all metrics that its tables show."""
    for cell in ScaleMIAStudy().cells(scale):
        kind, *rest = cell.name.split("/")
        if kind == "figure-6":
            yield from (row(cell.name, law, DISTANCE, 0.1) for law in LAWS)
            continue
        yield row(cell.name, None, BOUND, 0.6)
        specs = [rest[0]] if kind == "table-3" else HEADS if kind == "heads" else [CODED, PEELED]
        for spec in specs:
            yield from rates(cell.name, spec, 0.61)
            for metric in (
                "psnr-of-recovered",
                "psnr-of-returned",
                "ssim",
                "offline-seconds",
                "online-seconds",
            ):
                yield row(cell.name, spec, metric, 25.0)
            yield row(cell.name, spec, "vet-alarm", 1.0)


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
            yield histogram(cell, CODED, "psnr", PSNR_BINS)


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


@pytest.mark.parametrize("scale", ["smoke", "laptop", "paper"])
def test_tables_charts_and_pictures_fit_the_page_at_every_scale(scale, tmp_path):
    run = shown(list(made_up(scale)), tmp_path)
    names = {table.name for table in run.study.tables}
    assert {"table-3", "table-4-rate", "table-4-psnr", "table-5", "table-6", "table-7", "table-8"} <= names
    assert {"collisions", "dp", "quantisation", "local-steps", "laws", "fits", "vetting", "heads"} <= names
    charts = {chart.name for chart in run.study.charts}
    assert {"figure-5", "collisions", "dp", "quantisation", "heads"} <= charts
    pictured = [own.scenario.network for own in SCALES[scale].rows if 64 in own.batches]
    assert len(run.curves.gallery) == len(pictured) + pictured.count(pictured[0])


def test_figure_5_shows_the_mean_share_over_seeds_with_an_interval(tmp_path):
    cell = "table-4/cnn/cifar10/64"
    shown = [histogram(cell, CODED, "psnr", PSNR_BINS, share) for share in (0.1, 0.2, 0.3)]
    charts = ScaleMIAStudy().present(rates(cell, CODED, 0.6), Exhibits(histograms=tuple(shown))).charts
    (series,) = next(chart for chart in charts if chart.name == "figure-5").series
    # t(2) = 4.3027 standard errors of the mean of three values that deviate by 0.1
    assert series.values == pytest.approx([0.2] * len(PSNR_BINS))
    assert series.high == pytest.approx([0.2 + 4.3027 * 0.1 / 3**0.5] * len(PSNR_BINS), rel=1e-4)


def test_printed_and_measured_stand_side_by_side(tmp_path):
    tables = {table.name: table for table in shown(list(made_up("laptop")), tmp_path).study.tables}
    rate = tables["table-4-rate"]
    assert rate.columns == ("network (k)", "data", "64", "128", "256", "512", "1024")
    lines = {line[:2]: line[2:] for line in rate.rows}
    assert len(lines) == 15
    assert lines["cnn (1024)", "cifar10"][4].startswith("0.495 / 0.610 [")
    assert lines["vit (512)", "hmnist"][4] == "\N{EN DASH}"
    rivals = {line[:2]: line[2:] for line in tables["table-3"].rows}
    assert rivals["Inverting Gradients", "seconds"][1] == "81.213 / 25.000"
    assert rivals["GradInversion", "PSNR of the returned (dB)"][4] == "11.1 / 25.0"
    assert rivals["DLG", "seconds"][0] == rivals["iDLG", "seconds"][0] == "117.394 / 25.000"
    assert rivals["Eluding", "seconds"][3] == "\N{EN DASH} / 25.000"
    assert rivals["Inverting Gradients", "seconds"][5] == "\N{EN DASH}"
    assert rivals["Fishing", "PSNR of the returned (dB)"][0].startswith("19.2 / 25.0")
    assert dict(zip(tables["table-5"].columns, tables["table-5"].rows[0]))["0.01"].startswith("0.981 / 0.61")
    assert dict(zip(tables["table-7"].columns, tables["table-7"].rows[0]))["10"].startswith("0.983 / 0.61")


def test_a_part_of_the_study_shows_what_it_has(tmp_path):
    part = [found for found in made_up("smoke") if found.cell.startswith("dp/")]
    run = shown(part, tmp_path)
    assert [table.name for table in run.study.tables] == ["dp", "vetting"]
    assert [chart.name for chart in run.study.charts] == ["dp"]
