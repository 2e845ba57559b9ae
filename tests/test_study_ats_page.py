"""The tables and figures of the study ats, on made-up findings."""

from ats_findings import PLAIN, STRONG, TOLD, WOBBLE, attacked, drawn, row, table_1, trained

from glasshouse.exhibits import Exhibits
from glasshouse.studies.ats.cells import score_of
from glasshouse.studies.ats.grid import ATSStudy
from glasshouse.studies.ats.printed import BEST_FIVE


def presented(findings):
    shown = ATSStudy().present(findings, Exhibits())
    return {table.name: table for table in shown.tables}, {chart.name: chart for chart in shown.charts}


def test_tables_show_printed_and_measured_numbers_and_the_judge():
    head = "table-1/cifar100/resnet20"
    tables, _ = presented([*trained(model="resnet20", hybrid=0.01), *table_1(known=1.0, head=head)])
    rows = tables["table-1-cifar100-resnet20"].rows
    plain, strong, knowing = "adam-cosine", "swift-inversion", "swift-inversion, knows the defence"
    assert [line[:2] for line in rows[:2]] == [("none", plain), ("none", strong)]
    assert TOLD in tables["table-1-cifar100-resnet20"].note
    by_attack = {line[:2]: line for line in rows}
    assert by_attack["none", plain][2] == "12.15 \N{PLUS-MINUS SIGN} 2.06; 15.39 \N{PLUS-MINUS SIGN} 2.78"
    assert by_attack["none", strong][2] == "\N{EN DASH}"
    assert [line[1] for line in rows if line[-1] == "yes"] == [strong, knowing]
    assert by_attack["hybrid", strong][4] == "+6.00 [+6.00, +6.00]"  # the same search: 4 dB, then -2
    assert by_attack["hybrid", plain][4] == "+4.00 [+4.00, +4.00]"  # 1 dB, then -3
    assert by_attack["hybrid", knowing][6] == "-6.00 [-6.00, -6.00]"  # to the original: -5 dB, then 1
    assert len(tables["images-cifar100-resnet20"].rows) == len(WOBBLE)
    accuracies = tables["accuracy-table-1-cifar100-resnet20"].rows
    assert [line[0] for line in accuracies] == ["none", "hybrid"]
    assert accuracies[1][3] == "+0.010 [+0.009, +0.011]"


def test_other_defences_stand_beside_none_and_the_hybrid():
    cell = "table-6/cifar100/convnet-16/pruning-99"
    tables, _ = presented([*trained(), *table_1(), *attacked(cell, STRONG, 2.0)])
    arms = [line[0] for line in tables["table-6-cifar100-convnet-16"].rows]
    assert list(dict.fromkeys(arms)) == ["none", "hybrid", "pruning-99"]


def test_half_the_loss_is_compared_on_the_same_images():
    cell = "half-loss/cifar100/convnet-16/none"
    tables, _ = presented([*trained(), *table_1(none=4.0), *attacked(cell, PLAIN, 0.5)])
    ((attack, _, _, difference),) = tables["half-loss-cifar100-convnet-16"].rows
    assert (attack, difference) == (PLAIN, "-0.50 [-0.50, -0.50]")


def test_figure_8_sets_the_papers_five_apart():
    cell = "figure-8/cifar100/convnet-16/library"
    findings = [row(cell, score_of(index), index / 100, low=0.0, high=1.0) for index in (0, *BEST_FIVE)]
    tables, charts = presented(findings)
    best, others = charts["library-cifar100-convnet-16"].series
    assert [value is not None for value in best.values] == [
        index in BEST_FIVE for index in sorted((0, *BEST_FIVE))
    ]
    assert [value is None for value in others.values] == [value is not None for value in best.values]
    assert tables["best-cifar100-convnet-16"].rows[0][1:] == ("0 (invert-7)", "0.000 [0.000, 1.000]", "no")


def test_figure_4_names_the_coefficient_and_its_interval():
    _, charts = presented(drawn(3.0))
    figure = charts["figure-4"]
    assert list(figure.categories) == sorted(figure.categories)
    assert "Pearson's r +0.9" in figure.note
    assert "printed 0.697" in figure.note
