from dataclasses import replace

import pytest

from glasshouse.findings import Finding
from glasshouse.studies.mia_bad.cells import NULL_CURVE, SAMPLE, batch_batch, batch_sample
from glasshouse.studies.mia_bad.grid import MIABadStudy

HEAD = "table-1/cifar10/lenet"
RECORDS = 12000
BOTH = ("accuracy-at-5:1", "balanced-accuracy")
SINGLE, WHOLE = "judging single records", "judging whole batches"


def of_seeds(cell, attack, metric, values, reach=0.002):
    """A finding of the study for each value, with seeds from 0, each with an interval over records."""
    return [
        Finding(
            source="mia-bad",
            cell=cell,
            family="membership",
            attack=attack,
            metric=metric,
            value=value,
            low=value - reach,
            high=value + reach,
            n=RECORDS,
            seed=seed,
        )
        for seed, value in enumerate(values)
    ]


def fit(head=HEAD, train=0.95, gap=0.4):
    """How well the central target fits."""
    cell = f"{head}/central/sample"
    return of_seeds(cell, None, "train-accuracy", [train]) + of_seeds(cell, None, "train-test-gap", [gap])


def gained(gain, mode="central", head=HEAD, attack=batch_sample, sizes=(32,), metrics=BOTH):
    """Findings in which learning from batches gains this much at two seeds."""
    return [
        row
        for size in sizes
        for metric in metrics
        for row in of_seeds(f"{head}/{mode}/{size}", attack(size), f"{metric}-over-sample", [gain, gain])
    ]


def sampled(value, mode, metrics=BOTH):
    """Findings in which the sample-wise attack scores this much at two seeds."""
    return [
        row for metric in metrics for row in of_seeds(f"{HEAD}/{mode}/sample", SAMPLE, metric, [value, value])
    ]


def verdict_on(findings, beginning, ending=""):
    """The one verdict on a claim that begins and ends so, whatever its number."""
    verdicts = MIABadStudy().conclude(findings)
    (found,) = [
        one
        for one in verdicts
        if one.claim.partition(". ")[2].startswith(beginning) and one.claim.endswith(ending)
    ]
    return found


def federated(difference):
    return sampled(0.6 + difference, "central") + sampled(0.6, "5-clients")


def clients(difference):
    return sampled(0.6 + difference, "10-clients") + sampled(0.6, "2-clients")


def taken(difference):
    return gained(0.05, "10-clients") + gained(0.05 + difference, "2-clients")


def by_loss(difference):
    loss = "loss-threshold"
    central = of_seeds(f"{HEAD}/central/sample", loss, "auc", [0.7 + difference] * 2)
    return central + of_seeds(f"{HEAD}/5-clients/sample", loss, "auc", [0.7] * 2)


def matched(difference, apart=0.01):
    cell, other = "matched/cifar10/lenet/5-clients", f"{HEAD}/5-clients/sample"
    fits = of_seeds(cell, None, "train-accuracy", [0.8 + apart] * 2)
    fits += of_seeds(other, None, "train-accuracy", [0.8] * 2)
    leaks = of_seeds(cell, "loss-threshold", "auc", [0.6 + difference] * 2)
    return fits + leaks + of_seeds(other, "loss-threshold", "auc", [0.6] * 2)


def over_null(difference, null=0.8):
    cell = f"{HEAD}/central/32"
    wise = of_seeds(cell, batch_batch(32), "auc", [null + difference] * 2)
    return wise + of_seeds(cell, NULL_CURVE, "null-auc", [null] * 2)


def greatest(difference):
    fashion = "table-2/fashion-mnist/lenet"
    mine = gained(0.02 + difference, "2-clients", fashion, metrics=("accuracy-at-6:1", "balanced-accuracy"))
    return mine + gained(0.02, "2-clients") + fit(fashion)


@pytest.mark.parametrize(("made_up", "claim"), [
    (federated, ("The attack gets less",)),
    (clients, ("With more clients this protection becomes less",)),
    (gained, ("Batch-wise is better,", SINGLE)),
    (lambda gain: gained(gain, attack=batch_batch), ("Batch-wise is better,", WHOLE)),
    (taken, ("Federation takes the gain away", SINGLE)),
    (greatest, ("Of all data sets Fashion-MNIST", SINGLE)),
    (by_loss, ("Federation leaks less, whatever",)),
    (matched, ("Federation leaks less than a central model that fits",)),
    (over_null, ("Judging whole batches finds more",)),
])  # fmt: skip
@pytest.mark.parametrize(("difference", "verdict"), [
    (0.05, "holds"), (-0.05, "refuted"), (0.0, "refuted"), (0.006, "not shown"),
])  # fmt: skip
def test_a_claim_of_mia_bad_is_judged_by_the_interval_of_a_difference(made_up, claim, difference, verdict):
    reach = 0.02 if verdict == "not shown" else 0.001
    findings = [replace(row, low=row.value - reach, high=row.value + reach) for row in made_up(difference)]
    found = verdict_on(findings + fit(), *claim)
    assert found.verdict == verdict
    assert {part.verdict for part in found.parts} <= {verdict, "open"}
    assert f"{difference:+.3f}" in found.reason
    assert "2 seeds" in found.reason
    assert verdict_on(fit(), *claim).verdict == "open"


def test_claims_on_the_gain_are_judged_in_the_papers_metric_and_in_balanced_accuracy():
    findings = fit() + gained(0.05, metrics=BOTH[:1]) + gained(-0.05, metrics=BOTH[1:])
    found = verdict_on(findings, "Batch-wise is better,", SINGLE)
    assert {part.what: part.verdict for part in found.parts} == {
        "batch-wise minus sample-wise, accuracy at the paper's mix": "holds",
        "batch-wise minus sample-wise, balanced accuracy": "refuted",
    }
    assert found.verdict == "mixed"
    assert "can only move its threshold" in found.why


def test_the_gain_of_several_batch_sizes_is_their_mean_and_no_surer_than_one():
    findings = fit() + gained(0.04, sizes=(8,)) + gained(0.08, sizes=(16,))
    found = verdict_on(findings, "Batch-wise is better,", SINGLE)
    one = verdict_on(fit() + gained(0.06, sizes=(8,)), "Batch-wise is better,", SINGLE)
    assert [part.measured for part in found.parts] == [part.measured for part in one.parts]
    assert found.parts[0].cells == tuple(f"{HEAD}/central/{column}" for column in ("sample", 8, 16))


@pytest.mark.parametrize(("gain", "verdict"), [(-0.02, "holds"), (0.0, "holds"), (0.02, "refuted")])
def test_nothing_is_left_of_a_gain_that_is_negligible_or_negative(gain, verdict):
    found = verdict_on(fit() + gained(gain, "10-clients"), "With 10 clients nothing", SINGLE)
    assert found.verdict == verdict


def test_the_gain_in_federations_is_that_of_table_2_for_each_number_of_clients():
    head = "table-2/mnist/lenet"
    metrics = ("accuracy-at-6:1", "balanced-accuracy")
    findings = [
        row for mode in ("2-clients", "10-clients") for row in gained(0.02, mode, head, metrics=metrics)
    ]
    found = verdict_on(findings + fit(head) + fit(), "Batch-wise is better in federations too", SINGLE)
    assert found.verdict == "holds"
    judged = {part.where for part in found.parts if part.verdict == "holds"}
    assert judged == {"mnist, lenet, 2 clients", "mnist, lenet, 10 clients"}


@pytest.mark.parametrize(("model", "train", "gap", "words"), [
    ("lenet", 0.74, 0.3, "not trained far enough: a train accuracy of 0.74 (central)"),
    ("lenet", 0.99, 0.009, "nothing to find: a train-test gap of 0.009"),
    ("efficientnet-b0", 0.99, 0.4, "an illustration"),
])  # fmt: skip
def test_a_row_that_could_not_show_a_claim_leaves_it_open(model, train, gap, words):
    head = f"table-1/cifar10/{model}"
    findings = fit(head, train, gap) + gained(0.0, head=head)
    found = verdict_on(findings, "Batch-wise is better,", SINGLE)
    assert found.verdict == "open"
    assert words in found.reason
    judged = findings + fit() + gained(0.05)
    if model != "lenet":
        assert verdict_on(judged, "Batch-wise is better,", SINGLE).verdict == "holds"


def test_a_gain_in_a_federation_counts_where_that_federation_fits_its_data_too():
    findings = fit() + gained(0.0, "10-clients")
    poor = of_seeds(f"{HEAD}/10-clients/sample", None, "train-accuracy", [0.6])
    nothing = "With 10 clients nothing of the gain is left"
    assert verdict_on(findings, nothing, SINGLE).verdict == "holds"
    found = verdict_on(findings + poor, nothing, SINGLE)
    assert (found.verdict, "a train accuracy of 0.60 (10 clients)" in found.reason) == ("open", True)
    assert verdict_on(fit() + gained(0.05) + poor, "Batch-wise is better,", SINGLE).verdict == "holds"


def test_efficientnet_from_imagenet_weights_is_judged():
    head = "table-1/cifar10/efficientnet-b0-imagenet"
    assert verdict_on(fit(head) + gained(0.05, head=head), "Batch-wise is better,", SINGLE).verdict == "holds"


def test_a_row_without_its_central_target_is_open():
    found = verdict_on(gained(0.05), "Batch-wise is better,", SINGLE)
    assert found.verdict == "open"
    assert "the central target" in found.reason


def test_a_central_model_that_fits_otherwise_is_no_match():
    found = verdict_on(fit() + matched(0.05, apart=0.1), "Federation leaks less than a central model")
    assert found.verdict == "open"
    assert "differ by more than 0.03" in found.reason


def test_attacks_at_the_end_of_the_scale_are_not_compared():
    found = verdict_on(fit() + over_null(0.001, null=0.998), "Judging whole batches finds more")
    assert found.verdict == "open"
    assert "no room to differ" in found.reason


def by_size(slope, sizes=(8, 16, 32, 64), first=0.6):
    """Findings in which an attack on batches changes by a slope with each doubling of their size."""
    return fit() + [
        row
        for doublings, size in enumerate(sizes)
        for metric in BOTH
        for row in of_seeds(
            f"{HEAD}/central/{size}", batch_batch(size), metric, [first + doublings * slope] * 2
        )
    ]


@pytest.mark.parametrize(("slope", "first", "verdict"), [
    (0.0005, 0.6, "holds"),
    (0.02, 0.6, "refuted"),
    (-0.02, 0.6, "refuted"),
    (0.005, 0.6, "not shown"),
    (0.0, 0.999, "open"),
])  # fmt: skip
def test_independence_of_the_batch_size_is_judged_by_the_slope(slope, first, verdict):
    found = verdict_on(by_size(slope, first=first), "The gain does not depend on the batch size", WHOLE)
    assert found.verdict == verdict
    if verdict != "open":
        assert f"change with each doubling, cifar10, lenet, central: {slope:+.3f}"[:-1] in found.reason


def test_two_batch_sizes_are_too_few_for_a_slope():
    found = verdict_on(by_size(0.02, sizes=(8, 16)), "The gain does not depend on the batch size", WHOLE)
    assert found.verdict == "open"


def test_every_claim_of_the_paper_has_a_number_and_a_section_and_our_own_questions_a_letter():
    verdicts = MIABadStudy().conclude([])
    paper, own = ([one for one in verdicts if one.own == kind] for kind in (False, True))
    assert [one.claim.partition(".")[0] for one in paper] == [str(k) for k in range(1, 15)]
    assert [one.claim.partition(".")[0] for one in own] == ["A", "B", "C"]
    assert {one.section.partition(",")[0] for one in paper} == {f"section VI-{part}" for part in "BCD"}
