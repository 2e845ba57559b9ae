"""The verdicts and tables of the study ats, on made-up findings whose right answers are known."""

import numpy as np
import pytest

from glasshouse.exhibits import Exhibits
from glasshouse.findings import Finding
from glasshouse.studies.ats.cells import (
    ACCURACY,
    COST,
    ORIGINAL,
    OVERLAP,
    SCORE,
    TRANSFORMED,
    VISIBLE,
    after_epoch,
    gradsim,
    of_image,
    score_of,
)
from glasshouse.studies.ats.claims import CLAIMS, EXTENSIONS
from glasshouse.studies.ats.grid import ATSStudy
from glasshouse.studies.ats.printed import BEST_FIVE

PLAIN, STRONG = "adam-cosine(steps=600)", "swift-inversion(steps=600)"
KNOWING = "swift-inversion(steps=600,adaptive=True)"
BLIND = 10.0
WOBBLE = np.array([-0.3, 0.1, 0.2, -0.1, 0.3, -0.2, 0.0, 0.0])
"""How the images differ around their mean."""


def row(cell, metric, value, attack=None, **more):
    return Finding(
        source="ats", cell=cell, family="made up", metric=metric, value=value, attack=attack, seed=0, **more
    )


def attacked(cell, attack, gain, spread=1.0):
    """Images rebuilt with this mean gain above the blind guess, in what the attack seeks."""
    seeks = (ORIGINAL,) if "adaptive" in attack else (TRANSFORMED, VISIBLE)
    findings = []
    for metric in (TRANSFORMED, VISIBLE, ORIGINAL):
        values = BLIND + spread * WOBBLE + (gain if metric in seeks else -5.0)
        findings.append(
            row(cell, metric, float(values.mean()), attack, low=0.0, high=20.0, chance=BLIND, n=len(values))
        )
        findings += [
            row(cell, of_image(metric, number), float(value), attack, chance=BLIND, n=1)
            for number, value in enumerate(values)
        ]
    return findings


def trained(group="training", data="cifar100", model="convnet-16", accuracy=0.75, **costs):
    """The accuracy without a policy, and what each arm costs, within a tenth of a point."""
    head = f"{group}/{data}/{model}"
    findings = [
        row(f"{head}/none", ACCURACY, accuracy, low=accuracy - 0.01, high=accuracy + 0.01, chance=0.01)
    ]
    for arm, cost in costs.items():
        cell = f"{head}/{arm.replace('_', '-')}"
        findings.append(row(cell, COST, cost, low=cost - 0.001, high=cost + 0.001, n=5000))
        findings.append(row(cell, after_epoch(ACCURACY, 1), 0.1 - cost))
        findings.append(row(f"{head}/none", after_epoch(ACCURACY, 1), 0.1))
    return findings


def table_1(none=4.0, hybrid=-2.0, known=-2.0, head="table-1/cifar100/convnet-16"):
    return [
        *attacked(f"{head}/none", PLAIN, none - 3),
        *attacked(f"{head}/none", STRONG, none),
        *attacked(f"{head}/hybrid", PLAIN, hybrid - 1),
        *attacked(f"{head}/hybrid", STRONG, hybrid),
        *attacked(f"{head}/hybrid", KNOWING, known),
    ]


def verdict(findings, claim):
    (found,) = [each for each in ATSStudy().conclude(findings) if each.claim == claim]
    return found


def test_nothing_measured_leaves_every_claim_open():
    verdicts = ATSStudy().conclude([])
    assert [each.claim for each in verdicts] == [*CLAIMS.values(), *EXTENSIONS.values()]
    assert {each.verdict for each in verdicts} == {"open"}


def test_policies_under_which_nobody_beats_the_guess_make_reconstruction_infeasible():
    found = verdict([*trained(), *table_1()], CLAIMS[1])
    assert found.verdict == "holds"
    assert "-2.000" in found.reason
    assert "below no policy by 6.00 [6.00, 6.00] dB" in found.reason


def test_a_defence_is_judged_by_the_attacker_who_is_worse_for_it():
    known = verdict([*trained(), *table_1(hybrid=-2.0, known=3.0)], CLAIMS[1])
    unknown = verdict([*trained(), *table_1(hybrid=3.0, known=-2.0)], CLAIMS[1])
    assert known.verdict == unknown.verdict == "refuted"
    assert "one who knows the policy" in known.reason
    assert "one who does not know the policy" in unknown.reason


def test_a_search_that_finds_nothing_without_defence_leaves_claims_open():
    found = verdict([*trained(), *table_1(none=-1.0)], CLAIMS[1])
    assert found.verdict == "open"
    assert "without a defence the search is not" in found.reason
    assert verdict([*trained(), *table_1(none=0.6, hybrid=0.5, known=0.55)], CLAIMS[1]).verdict == "open"


def test_a_policy_that_lowers_nothing_does_not_make_reconstruction_infeasible():
    head = "table-1/cifar100/convnet-16"
    for spread, expected in ((1.0, "holds"), (-3.0, "not shown")):  # alike in all images, or in their mean
        undefended = attacked(f"{head}/none", STRONG, 1.3, spread)
        found = verdict([*trained(), *undefended, *attacked(f"{head}/hybrid", STRONG, 0.75)], CLAIMS[1])
        assert found.verdict == expected


def test_a_model_that_learned_little_leaves_claims_open():
    findings = [*trained(accuracy=0.03, hybrid=0.0), *table_1()]
    for number in (1, 5):
        found = verdict(findings, CLAIMS[number])
        assert found.verdict == "open"
        assert "less than 5 times" in found.reason


def test_what_a_policy_costs_is_open_where_there_is_little_accuracy_to_lose():
    """The papers print 0.78 without a policy."""
    found = verdict([*trained(accuracy=0.3, hybrid=0.0), *table_1()], CLAIMS[4])
    assert found.verdict == "open"
    assert "less than 95% of the accuracy that the papers print" in found.reason


def test_the_digits_decide_nothing():
    findings = [
        *trained(data="digits", model="lenet", accuracy=0.9, hybrid=0.0),
        *table_1(head="table-1/digits/lenet"),
    ]
    assert {each.verdict for each in ATSStudy().conclude(findings)} == {"open"}


@pytest.mark.parametrize(("gains", "expected"), [
    ({"lbfgs-l2": 1.0, "adam-l1": 0.5}, "holds"),
    ({"lbfgs-l2": 1.0, "adam-l1": 4.0}, "refuted"),
    ({"lbfgs-l2": 1.0, "adam-l1": 3.0}, "not shown"),
])  # fmt: skip
def test_policies_are_general_if_every_attack_that_works_loses(gains, expected):
    head = "table-2/cifar100/convnet-16"
    findings = [*trained(), *table_1()]
    for attack, gain in gains.items():
        findings += attacked(f"{head}/none", attack, 3.0)
        findings += attacked(f"{head}/hybrid", attack, gain)
    findings += attacked(f"{head}/none", "sgd-cosine", -2.0) + attacked(f"{head}/hybrid", "sgd-cosine", 1.0)
    found = verdict(findings, CLAIMS[2])
    assert found.verdict == expected
    assert "sgd-cosine on convnet-16: without a defence the search" in found.reason.partition("left out: ")[2]


def test_an_attack_is_left_out_only_on_the_network_on_which_it_fails():
    findings = [
        *trained(),
        *table_1(none=5.0),
        *trained(model="resnet20", accuracy=0.03),
        *table_1(head="table-1/cifar100/resnet20"),
    ]
    found = verdict(findings, CLAIMS[2])
    assert found.verdict == "holds"
    assert "adam-cosine on convnet-16 +" in found.reason
    assert "adam-cosine on resnet20: the undefended model is less than" in found.reason


@pytest.mark.parametrize(("known", "expected"), [(1.0, "holds"), (4.0, "not shown"), (6.0, "refuted")])
def test_policies_transfer_if_the_gain_falls_on_other_data(known, expected):
    other = {"data": "fashion-mnist", "model": "convnet-16"}
    findings = [
        *trained("training-transferred", **other, accuracy=0.8),
        *table_1(hybrid=-2.0, known=known, head="table-4/fashion-mnist/convnet-16"),
    ]
    assert verdict(findings, CLAIMS[3]).verdict == expected


def test_the_first_extension_is_judged_like_the_first_claim():
    head = "table-5/tiny-imagenet-20/convnet-16"
    base = trained("training-transferred", data="tiny-imagenet-20", accuracy=0.4)
    assert verdict([*base, *table_1(head=head)], EXTENSIONS[1]).verdict == "holds"
    assert verdict([*base, *table_1(known=2.0, head=head)], EXTENSIONS[1]).verdict == "refuted"


@pytest.mark.parametrize(("cost", "expected"), [(0.01, "holds"), (0.05, "refuted"), (0.02, "not shown")])
def test_a_cost_under_two_points_is_negligible(cost, expected):
    found = verdict([*trained(hybrid=cost), *table_1()], CLAIMS[4])
    assert found.verdict == expected
    assert f"{cost:+.3f}" in found.reason.partition("epochs")[2]


@pytest.mark.parametrize(("shallow", "deep", "expected"), [
    (0.4, 0.1, "holds"), (0.1, 0.4, "refuted"), (0.2, 0.2, "not shown"),
])  # fmt: skip
def test_details_are_distorted_if_shallow_layers_lose_more_likeness(shallow, deep, expected):
    findings = [*trained(), *table_1()]
    losses = {"none": (0.0, 0.0), "hybrid": (shallow, deep)}
    for arm, (in_shallow, in_deep) in losses.items():
        for number, wobble in enumerate(WOBBLE):
            cell = f"table-1/cifar100/convnet-16/{arm}"
            shaken = wobble / 10 if arm == "hybrid" else 0.0
            for part, loss in (("shallow", in_shallow + shaken), ("deep", in_deep)):
                findings.append(row(cell, of_image(gradsim(part), number), 0.9 - loss, STRONG, n=1))
    assert verdict(findings, CLAIMS[5]).verdict == expected


@pytest.mark.parametrize(("found", "low", "high", "expected"), [
    (5, 4, 5, "holds"), (1, 0, 2, "refuted"), (3, 2, 4, "not shown"),
])  # fmt: skip
@pytest.mark.parametrize(("claim", "data"), [(CLAIMS[6], "cifar100"), (EXTENSIONS[2], "tiny-imagenet-20")])
def test_the_best_five_are_found_or_not(claim, data, found, low, high, expected):
    cell = f"figure-8/{data}/convnet-16/library"
    overlap = row(cell, OVERLAP, found, low=low, high=high, n=24)
    accuracy = row(cell, ACCURACY, 0.3, low=0.26, high=0.34, chance=0.05)
    assert verdict([accuracy, overlap], claim).verdict == expected
    untrained = row(cell, ACCURACY, 0.05, low=0.04, high=0.06, chance=0.05)
    assert verdict([untrained, overlap], claim).verdict == "open"


def drawn(slope, count=40, untouched=3.0, noise=0.1):
    """Policies whose PSNR follows their score, with noise of standard deviation 1.

    The PSNR of single images has more `noise`; without a policy the search is `untouched` dB above a guess.
    """
    rng = np.random.default_rng(2)
    scores = rng.uniform(0.2, 0.8, count)
    psnr = 10 + slope * (scores - 0.5) / scores.std() + rng.normal(size=count)
    head = "figure-4/cifar100/convnet-16"
    findings = [*trained("training-figure-4"), *attacked(f"{head}/none", STRONG, untouched)]
    for number, (score, reached) in enumerate(zip(scores, psnr)):
        cell = f"{head}/{number}-1-2"
        findings.append(row(cell, SCORE, float(score), low=0.0, high=1.0))
        for metric in (TRANSFORMED, VISIBLE, ORIGINAL):
            findings.append(row(cell, metric, float(reached), STRONG, chance=BLIND))
            findings += [
                row(
                    cell, of_image(metric, image), float(reached + noise * rng.normal()), STRONG, chance=BLIND
                )
                for image in range(4)
            ]
    return findings


@pytest.mark.parametrize(("slope", "expected"), [(3.0, "holds"), (0.0, "refuted"), (0.7, "not shown")])
def test_scores_are_correlated_if_the_interval_of_r_says_so(slope, expected):
    found = verdict(drawn(slope), CLAIMS[7])
    assert found.verdict == expected
    assert "n = 40 policies" in found.reason
    assert verdict(drawn(slope, count=6), CLAIMS[7]).verdict == "open"


def test_a_correlation_is_open_where_its_search_shows_nothing_or_its_psnr_is_noise():
    assert verdict(drawn(3.0, untouched=0.2), CLAIMS[7]).verdict == "open"
    noisy = verdict(drawn(0.0, noise=30.0), CLAIMS[7])
    assert noisy.verdict == "open"
    assert "reliability of the PSNR 0." in noisy.reason


def presented(findings):
    shown = ATSStudy().present(findings, Exhibits())
    return {table.name: table for table in shown.tables}, {chart.name: chart for chart in shown.charts}


def test_tables_show_printed_and_measured_numbers_and_the_judge():
    head = "table-1/cifar100/resnet20"
    tables, _ = presented([*trained(model="resnet20", hybrid=0.01), *table_1(known=1.0, head=head)])
    rows = tables["table-1-cifar100-resnet20"].rows
    plain, strong, knowing = "adam-cosine", "swift-inversion", "swift-inversion, knows the defence"
    assert [line[:2] for line in rows[:2]] == [("none", plain), ("none", strong)]
    assert KNOWING in tables["table-1-cifar100-resnet20"].note
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
