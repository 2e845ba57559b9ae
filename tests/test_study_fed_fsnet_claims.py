"""The claims of `fed-fsnet`, judged from made findings; its tables and charts, made of the same."""

import itertools
from dataclasses import replace

import pytest

from glasshouse.exhibits import TrainingPoint
from glasshouse.findings import Finding
from glasshouse.studies.fed_fsnet.grid import ABLATIONS, ALL, PAPERS, FedFSNetStudy, _behind
from glasshouse.studies.fed_fsnet.layout import charts, tables
from glasshouse.studies.fed_fsnet.measured import (
    GLOBAL,
    LOCAL_OWN,
    MEMBERSHIP,
    ROBUST,
    SUMMED,
    Federations,
)
from glasshouse.studies.fed_fsnet.printed import DATA, RIVALS, TABLE_1, WORDS, printed_gains

MNIST = "mnist, mlp, f = 0.1, 50 rounds"
TESTED = 8000
ACCURACIES = {
    "test-accuracy": 0.0,
    "late-accuracy": 0.0,
    "mean-accuracy": -0.1,
    "local-accuracy": -0.3,
    "late-local-accuracy": -0.3,
    "late-local-accuracy-own-classes": 0.35,
    "late-global-accuracy-own-classes": 0.05,
}
"""What is measured of a federation, above its Acc_global."""
COSTS = {
    "rounds": 50,
    "wobble": 0.05,
    "jump": 0.05,
    "bytes-up": 800_000,
    "seconds-per-round": 2.0,
    "rounds-to-0.50": 10,
    "rounds-to-0.60": 20,
}
SENT = {"fed-fsnet": 188_000, "fed-fsnet-features": 48_000, "extractor-fed-fsnet": 15_000}


def made(gains=None, settings=(("mnist", 0.1),), *, seeds=2, spread=0.0, reach=0.002, leaks=None, **costs):
    """Findings in which methods end so far above FedAvg's 0.6, IID data 0.35 above it, at every seed."""
    gains = {"upper-bound": 0.35, "extractor-upper-bound": 0.35, **(gains or {})}
    rows = []
    for (data, fraction), seed in itertools.product(settings, range(seeds)):
        extracted = _behind("fashion-mnist")
        for method in (*ALL, *ABLATIONS, *extracted):
            kind = "ablation" if method in ABLATIONS else "extractor" if method in extracted else "table"
            common = {
                "source": "fed-fsnet",
                "cell": f"{kind}/{data}/mlp/f-{fraction}/{method.name}",
                "family": "utility",
                "strategy": method.strategy,
                "seed": seed,
            }
            value = 0.6 + gains.get(method.name, 0.0) + spread * (-1) ** seed
            for metric, above in ACCURACIES.items():
                share = min(value + above, 0.999)
                rows.append(
                    Finding(
                        **common, metric=metric, value=share, low=share - reach, high=share + reach, n=TESTED
                    )
                )
            down = costs.get("model", 800_000) + SENT.get(method.name, 0)
            for metric, number in {**COSTS, "bytes-down": down}.items():
                more = costs.get(metric, 0.0) if method.name == "fed-fsnet" else 0.0
                more += 0.001 * seed * (metric == "seconds-per-round")
                rows.append(Finding(**common, metric=metric, value=number + more, n=50))
            if leaks is not None and method in PAPERS and fraction < 1:
                rows += leaking(common, f"leaks/{data}/mlp/f-{fraction}/{method.name}", leaks, method.name)
    return rows


def leaking(common, cell, leaks, method):
    """What attacks find: what a blind guess does, and more by so much where `leaks` says so of a metric."""
    found = {
        ("loss-threshold", "outsider", "auc"): 0.5,
        ("label-counts", "blind server", "label-overlap"): 0.4,
        ("reported-labels", "curious server", "label-overlap"): 0.2,
        ("mimic-distance", "client", "auc"): 0.5,
        ("mimic-neighbours", "client", "nearest-member-share"): 0.5,
    }
    for (attack, adversary, metric), chance in found.items():
        value = chance + (leaks.get(attack, 0.0) if method in ("fed-fsnet", "fedgen") else 0.0)
        yield Finding(
            **common | {"cell": cell, "family": "x"},
            attack=attack,
            adversary=adversary,
            metric=metric,
            value=value,
            low=value - 0.002,
            high=value + 0.002,
            chance=chance,
            n=4000,
        )


def verdict_on(findings, beginning, ending=""):
    """The one verdict on a claim that begins and ends so, whatever its number."""
    (found,) = [
        one
        for one in FedFSNetStudy().conclude(findings)
        if one.claim.partition(". ")[2].startswith(beginning) and one.claim.endswith(ending)
    ]
    return found


MARGIN = "Fed-FSNet surpasses the lower bound"
BEST = "It constantly has the best Acc_global"
LOCAL_MARGIN, LOCAL_BEST = "Its margin in Acc_local", "It constantly has the best Acc_local"


@pytest.mark.parametrize(("gain", "reach", "verdict"), [
    (0.2, 0.002, "holds"), (0.03, 0.002, "refuted"), (-0.1, 0.002, "refuted"), (0.05, 0.002, "not shown"),
])  # fmt: skip
def test_a_margin_is_significant_from_five_points_on(gain, reach, verdict):
    found = verdict_on(made({"fed-fsnet": gain}, reach=reach), MARGIN)
    assert found.verdict == verdict
    assert found.printed == "+0.278 to +0.461"
    assert set(found.cells) == {f"table/mnist/mlp/f-0.1/{name}" for name in ("fed-fsnet", "fedavg")}


def test_settings_are_judged_one_by_one_and_with_all_clients_too():
    settings = [("mnist", 0.1), ("mnist", 1.0), ("cifar10", 0.1)]
    found = verdict_on(made({"fed-fsnet": 0.2}, settings), MARGIN)
    assert [part.where for part in found.parts] == [
        f"{data}, mlp, f = {fraction}, 50 rounds" for data, fraction in settings
    ]
    findings = [
        replace(row, value=row.value - 0.18, low=row.low - 0.18, high=row.high - 0.18)
        if row.cell == "table/mnist/mlp/f-1.0/fed-fsnet" and row.metric == "late-accuracy"
        else row
        for row in made({"fed-fsnet": 0.2}, settings)
    ]
    assert verdict_on(findings, MARGIN).verdict == "mixed"


def test_where_iid_data_are_hardly_better_no_margin_can_show():
    for room in (0.04, 0.0):
        found = verdict_on(made({"fedavg": 0.35 - room, "fed-fsnet": 0.34}), MARGIN)
        assert found.verdict == "open"
        assert f"no room: FedAvg is only {room:.3f} better" in found.reason


def test_what_the_paper_leaves_undefined_can_be_shown_and_not_refuted():
    assert verdict_on(made({"fed-fsnet": 0.2}), LOCAL_MARGIN).verdict in ("holds", "holds in part")
    lost = made({"fed-fsnet": -0.2, "fedgen": 0.2})
    for claim in (LOCAL_MARGIN, LOCAL_BEST):
        found = verdict_on(lost, claim)
        assert found.verdict in ("not shown", "holds in part")
        assert "refuted" not in {part.verdict for part in found.parts}
        assert "is not said" in found.why
    readings = {part.what.partition(",")[0] for part in verdict_on(lost, LOCAL_MARGIN).parts}
    assert readings == {"Acc_local on all classes", "Acc_local on own classes", "global model on own classes"}


def test_the_best_is_above_every_rival_and_one_rival_above_it_denies_that():
    assert verdict_on(made({"fed-fsnet": 0.1}), BEST).verdict == "holds"
    found = verdict_on(made({"fed-fsnet": 0.1, "fedgen": 0.2}), BEST)
    assert found.verdict == "mixed"
    assert {part.what.rpartition(" minus ")[2]: part.verdict for part in found.parts} == {
        "FedAvg": "holds", "AFL": "holds", "FedDF": "holds", "FedGEN": "refuted"
    }  # fmt: skip
    assert "FedGEN's server" in found.why
    assert verdict_on(made({"fed-fsnet": 0.005}), BEST).verdict == "refuted"


def test_being_ahead_of_a_shortened_feddf_says_nothing_and_being_behind_it_counts():
    def shortened(gains):
        return [
            replace(row, strategy="feddf(steps=400, patience=100)") if row.strategy == "feddf" else row
            for row in made(gains)
        ]

    ahead, behind = (
        {part.what.rpartition(" ")[2]: part for part in verdict_on(shortened(gains), BEST).parts}["FedDF"]
        for gains in ({"fed-fsnet": 0.1}, {"fed-fsnet": 0.1, "feddf": 0.2})
    )
    assert ahead.verdict == "open"
    assert "fewer steps than published" in ahead.measured
    assert behind.verdict == "refuted"


@pytest.mark.parametrize(
    "beginning", [MARGIN, BEST, LOCAL_MARGIN, "It greatly narrows", "Its training converges"]
)
def test_a_setting_is_judged_where_iid_training_reaches_what_is_printed_for_fed_fsnet(beginning):
    reached = made({"fed-fsnet": 0.1, "upper-bound": 0.215 + 0.001})
    below = made({"fed-fsnet": 0.1, "upper-bound": 0.215 - 0.001})
    assert verdict_on(reached, beginning).verdict != "open"
    found = verdict_on(below, beginning)
    assert found.verdict == "open"
    assert "not trained far enough: FedAvg on IID data reaches 0.814, below the 0.815" in found.reason


def test_a_setting_without_its_upper_bound_or_without_a_printed_number_is_open():
    bare = [row for row in made({"fed-fsnet": 0.1}) if "upper-bound" not in row.cell]
    assert "by which it is seen how far training went" in verdict_on(bare, MARGIN).reason
    digits = [replace(row, cell=row.cell.replace("mnist", "digits")) for row in made({"fed-fsnet": 0.1})]
    assert "the paper has no digits" in verdict_on(digits, MARGIN).reason


@pytest.mark.parametrize(("gain", "verdict"), [(0.25, "holds"), (0.1, "refuted"), (0.175, "not shown")])
def test_a_gap_is_greatly_narrowed_where_half_of_it_is_closed(gain, verdict):
    assert verdict_on(made({"fed-fsnet": gain}), "It greatly narrows the gap").verdict == verdict


def test_printed_shares_and_gains_are_those_of_table_1():
    def share(data, fraction):
        place = DATA.index(data)
        mine, upper, lower = (
            TABLE_1[name, fraction][place][0] for name in ("fed-fsnet", "upper-bound", "fedavg")
        )
        return (mine - lower) / (upper - lower)

    shares = [share(data, fraction) for data in DATA for fraction in (0.1, 1.0)]
    found = verdict_on(made(), "It greatly narrows the gap")
    assert found.printed == f"{min(shares):.0%} to {max(shares):.0%} of it"
    assert printed_gains("fed-fsnet", ["fedgen"], 0, (0.1,)) == "+0.032 to +0.069"
    assert printed_gains("fed-fsnet", RIVALS, 1, (0.1,)).startswith("+0.012")


def test_an_upper_bound_is_above_and_one_that_is_passed_is_none():
    assert verdict_on(made({"fed-fsnet": 0.1}), "FedAvg on IID data stays above").verdict == "holds"
    assert verdict_on(made({"fed-fsnet": 0.39}), "FedAvg on IID data stays above").verdict == "refuted"


def test_a_steadier_curve_is_one_that_moves_less_at_every_seed():
    def moved(by):
        return [
            replace(row, value=row.value + by + 0.0001 * row.seed)
            if row.metric in ("wobble", "jump") and row.cell.endswith("/fed-fsnet")
            else row
            for row in made(seeds=3)
        ]

    for by, verdict in ((-0.03, "holds"), (0.03, "refuted"), (0.0, "not shown")):
        assert verdict_on(moved(by), "Its training is more stable").verdict == verdict


@pytest.mark.parametrize(("model", "verdict"), [(100_000, "refuted"), (10_000_000, "holds")])
def test_mimic_samples_are_little_only_beside_a_large_model(model, verdict):
    found = verdict_on(made(model=model), "The 60 mimic samples")
    assert found.verdict == verdict
    assert found.why if verdict == "refuted" else not found.why


def test_features_are_compared_with_the_samples_of_the_same_images():
    found = verdict_on(made(), "Features by a pre-trained extractor")
    assert found.verdict == "holds"
    assert f"{15 / 188:+.3f}" in found.reason
    assert len(found.cells) == 4


@pytest.mark.parametrize(
    ("dearer", "slower", "verdict"),
    [(2.0, 0, "refuted"), (0.1, 0, "holds"), (0.0, 20, "refuted"), (2.0, -11, "holds")],
)
def test_computing_counts_up_to_where_fedavg_gets(dearer, slower, verdict):
    findings = made(seeds=3, **{"seconds-per-round": dearer, "rounds-to-0.60": slower})
    assert verdict_on(findings, "It suits devices with little computing").verdict == verdict


def test_who_never_gets_as_far_as_fedavg_has_spent_all_rounds_at_least():
    missed = ("table/mnist/mlp/f-0.1/fed-fsnet", "rounds-to-0.60")
    rows = [row for row in made(seeds=3) if (row.cell, row.metric) != missed]
    found = verdict_on(rows, "It suits devices with little computing")
    assert found.verdict == "refuted"
    assert "at least" in found.reason
    assert f"{50 / 20 - 1:+.3f}" in found.reason
    cheap = [
        replace(row, value=0.5) if row.metric == "seconds-per-round" and "fed-fsnet" in row.cell else row
        for row in rows
    ]
    assert verdict_on(cheap, "It suits devices with little computing").verdict == "not shown"


@pytest.mark.parametrize(("attack", "claim"), [
    ("label-counts", "It keeps the privacy of secure aggregation"),
    ("loss-threshold", "It keeps the privacy of secure aggregation"),
    ("reported-labels", "The mean and variance"),
    ("mimic-distance", "The mimic samples give nobody's records away"),
    ("mimic-neighbours", "The mimic samples give nobody's records away"),
    ("loss-threshold", "Other strategies give away no more"),
    ("reported-labels", "What AFL and FedGEN have clients report"),
])  # fmt: skip
def test_privacy_holds_where_no_attack_is_a_point_above_what_it_is_compared_with(attack, claim):
    assert verdict_on(made(leaks={}), claim).verdict == "holds"
    leaky = verdict_on(made(leaks={attack: 0.1}), claim)
    assert "refuted" in {part.verdict for part in leaky.parts}
    assert leaky.verdict in ("refuted", "mixed")


@pytest.mark.parametrize(
    ("change", "verdict"), [(0.0, "holds"), (0.012, "holds"), (0.05, "refuted"), (0.02, "not shown")]
)
def test_a_change_of_fed_fsnet_is_negligible_within_two_points(change, verdict):
    findings = made({"fed-fsnet": 0.1, "hidden-16": 0.1 + change})
    assert verdict_on(findings, "Fed-FSNet does as well with a hidden model").verdict == verdict


@pytest.mark.parametrize(("method", "other", "beginning"), [
    ("target-class", "fed-fsnet", "Fed-FSNet does better where clients learn the class"),
    ("extractor-fed-fsnet", "extractor-fedavg", "Behind a pre-trained extractor"),
    ("scaffold", "fedavg", "SCAFFOLD has a higher Acc_global than FedAvg"),
    ("fedrecall", "fedgen", "FedRecall has a higher Acc_global than FedGEN"),
])  # fmt: skip
def test_questions_of_our_own_compare_pairs_of_one_seed(method, other, beginning):
    for gain, verdict in ((0.1, "holds"), (0.0, "refuted"), (-0.1, "refuted")):
        found = verdict_on(made({method: gain}, spread=0.02), beginning)
        assert (found.verdict, found.own) == (verdict, True)
        assert WORDS[other] in found.parts[0].what


def test_why_little_is_gained_mentions_the_lower_bound_only_where_it_is_higher():
    assert "far above the printed lower bound" in verdict_on(made(), MARGIN).why
    low = [
        replace(row, value=0.4, low=0.39, high=0.41)
        if row.cell.endswith("f-0.1/fedavg") and row.metric == "late-accuracy"
        else row
        for row in made({"fed-fsnet": -0.3})
    ]
    found = verdict_on(low, MARGIN)
    assert found.verdict == "refuted"
    assert "lower bound" not in found.why


def test_every_claim_has_a_number_and_a_section_and_our_own_questions_a_letter():
    verdicts = FedFSNetStudy().conclude([])
    paper, own = ([one for one in verdicts if one.own == kind] for kind in (False, True))
    assert [one.claim.partition(".")[0] for one in paper] == [str(number) for number in range(1, 16)]
    assert [one.claim.partition(".")[0] for one in own] == list("ABCDEFGHIJKLMNO")
    assert all(one.section for one in paper)
    assert {one.verdict for one in verdicts} == {"open"}
    assert own[0].claim.endswith("a hidden model of 16 neurons")  # the page speaks of questions A and D
    assert own[3].claim.endswith("the class that a mimic stands for")


def test_adversaries_of_one_attack_are_kept_apart_and_options_dropped():
    common = {"source": "", "cell": "leaks/mnist/mlp/f-0.1/fedavg", "family": "x", "seed": 0}
    rows = [
        Finding(**common, attack="label-counts", adversary=who, metric="label-overlap", value=value)
        for who, value in (("curious server", 0.9), ("blind server", 0.4))
    ]
    rows.append(
        Finding(**common, attack="pgd(eps=0.1)", adversary="owner", metric="robust-accuracy", value=0.2)
    )
    measured = Federations(rows)
    (pair,) = measured.pairs("leaks")
    assert measured.at(pair, SUMMED)[0].value == 0.4
    assert measured.at(pair, ROBUST)[0].value == 0.2


def test_tables_and_figures_are_made_of_what_is_there():
    findings = made({"fed-fsnet": 0.05}, [(data, 0.1) for data in DATA], leaks={})
    cells = {(row.cell, row.seed) for row in findings if not row.attack}
    training = [
        TrainingPoint(cell=cell, seed=seed, round=number, acc_global=0.05 * number + 0.01 * seed)
        for cell, seed in sorted(cells)
        for number in range(1, 11)
    ]
    measured = Federations(findings, training)
    shown = {table.name: table for table in tables(measured)}
    assert set(shown) == {
        "table-1", "table-2", "strategies", "ablations", "training", "extractor", "costs", "leaks", "choices"
    }  # fmt: skip
    assert all(len(row) == len(table.columns) for table in shown.values() for row in table.rows)
    assert ("Fed-FSNet", MNIST, "0.815") in [row[:3] for row in shown["table-1"].rows]
    row = next(row for row in shown["table-1"].rows if row[:2] == ("FedAvg", MNIST))
    beside = dict(zip(shown["table-1"].columns, row, strict=True))
    assert beside["Acc_local, printed"] == "0.498"
    assert beside["Acc_local on all classes, late"].startswith("0.300")
    assert beside["Acc_local on own classes, late"].startswith("0.950")
    drawn = charts(measured)
    assert len({chart.name for chart in drawn}) == len(drawn)
    figure = next(chart for chart in drawn if chart.title.startswith("Figure 2"))
    assert [series.name for series in figure.series] == ["FedAvg, IID", "FedAvg", "Fed-FSNet"]
    assert figure.series[0].values[4] == pytest.approx(0.25 + 0.005)  # the mean of two seeds
    assert all(len(line.values) == len(chart.categories) for chart in drawn for line in chart.series)
    some = Federations(findings[:20])
    assert tables(some)
    (scenario, *_) = measured.scenarios()
    assert measured.of((scenario, "fedavg"), GLOBAL).n == TESTED
    assert measured.over_chance((scenario, "fed-fsnet"), MEMBERSHIP)
    assert measured.of((scenario, "fedavg"), LOCAL_OWN).value == pytest.approx(0.95)
