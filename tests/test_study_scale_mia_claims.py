"""What the study says of Tables 4 to 8 and the figures, where findings are known."""

import pytest
from scale_mia_findings import alone, rate, refused, row, trained, verdict_on

from glasshouse.studies.scale_mia.autoencoders import DISTANCE
from glasshouse.studies.scale_mia.cells import PSNR, PUBLISHED, RATE
from glasshouse.studies.scale_mia.grid import ScaleMIAStudy

ROW = "table-4/cnn/cifar10"


def large(gain, spread=0.002):
    return rate(f"{ROW}/512", 0.1 + gain, spread=spread)


def as_printed(gap, spread=0.002):
    return rate(f"{ROW}/512", 0.7126 + gap, spread=spread)


def quality(above, spread=0.002):
    return [row(f"{ROW}/1024", PUBLISHED, PSNR, 20 + above, spread), *rate(f"{ROW}/1024", 0.5)]


def falls(slope, spread=0.002, metric=RATE):
    return [
        row(f"{ROW}/{64 * 2**k}", PUBLISHED, metric, 0.9 - k * slope, spread, chance=0.1) for k in range(3)
    ]


def worse(slope, spread=0.002):
    return falls(slope, spread, "psnr")


def wider(gain, spread=0.002):
    narrow = trained("alexnet") + rate("table-4/alexnet/cifar10/256", 0.6, spread=spread)
    return rate(f"{ROW}/256", 0.6 + gain, spread=spread) + narrow


def below_half(above, spread=0.002):
    return rate(f"{ROW}/256", 0.6 + above, spread=spread) + rate(f"{ROW}/512", 0.0)


def lost(saved, spread=0.002):
    return rate(f"{ROW}/512", 0.6 + 0.05 - saved, spread=spread) + alone(f"{ROW}/512", 0.6)


def excellent(above, spread=0.002):
    return rate(f"{ROW}/64", 0.9 + above, spread=spread)


def starved(metric, table, granted, amount):
    """How much lower a metric is for who has less, at two batch sizes."""

    def made_up(fall, spread=0.002):
        findings = trained(granted=granted)
        for batch in (16, 64):
            of_all, of_less = f"table-5/cnn/1/{batch}", f"table-{table}/cnn/{amount}/{batch}"
            findings += rate(of_all, 0.9) + rate(of_less, 0.9)
            pair = (
                row(of_all, PUBLISHED, metric, 0.9, spread),
                row(of_less, PUBLISHED, metric, 0.9 - fall, spread),
            )
            findings = [
                one for one in findings if (one.cell, one.metric) not in {(p.cell, metric) for p in pair}
            ]
            findings += pair
        return findings

    return made_up


def hardly(table, granted, amount):
    made_up = starved(RATE, table, granted, amount)
    return lambda margin, spread=0.002: made_up(0.05 - margin, spread)


def targeted(gain, spread=0.002):
    return trained(granted="1-classes") + rate("table-7/cnn/1/64", 0.1 + gain, spread=spread)


def near_a_law(margin, spread=0.002):
    cell = "figure-6/cnn/cifar10"
    return [row(cell, "normal", DISTANCE, 0.1 - margin, spread), row(cell, "laplace", DISTANCE, 0.4, spread)]


def peaked(more, spread=0.002):
    gaps = {"hmnist": 0.2 + more, "cifar10": 0.2}
    return trained(data="hmnist") + [
        row(f"figure-6/cnn/{data}", "normal", DISTANCE, gap, spread) for data, gap in gaps.items()
    ]


def harder(less, spread=0.002):
    findings = trained("vgg") + trained("vgg", "hmnist")
    for batch in (64, 128):
        findings += rate(f"table-4/vgg/cifar10/{batch}", 0.7, spread=spread)
        findings += rate(f"table-4/vgg/hmnist/{batch}", 0.7 - less, spread=spread)
    return findings


@pytest.mark.parametrize(("made_up", "claim"), [
    (large, "Large batches are recovered"),
    (quality, "What is recovered is of good quality"),
    (falls, "The recovery rate falls"),
    (worse, "With larger batches the distribution"),
    (wider, "The more neurons"),
    (below_half, "At least 0.6"),
    (lost, "Samples that share a bin are mixed up"),
    (excellent, "Batches of 64 are rebuilt excellently"),
    (hardly(5, "0.01", 0.01), "The number of auxiliary images hardly"),
    (starved(PSNR, 5, "0.01", 0.01), "With fewer auxiliary images the PSNR"),
    (hardly(7, "1-classes", 1), "The number of classes"),
    (starved(PSNR, 7, "1-classes", 1), "With fewer classes the PSNR"),
    (targeted, "An attacker with images of one class"),
    (near_a_law, "The latents' brightness follows"),
    (peaked, "HMNIST's brightness is less normal"),
    (harder, "With ViT, ResNet and VGG less"),
])  # fmt: skip
@pytest.mark.parametrize(("by", "spread", "verdict"), [
    (0.04, 0.002, "holds"), (-0.04, 0.002, "refuted"), (0.01, 0.03, "not shown"),
])  # fmt: skip
def test_a_claim_of_scale_mia_is_judged_by_the_interval_of_what_it_says(made_up, claim, by, spread, verdict):
    found = verdict_on(trained() + made_up(by, spread), claim)
    assert found.verdict == verdict
    assert {one.verdict for one in found.parts} <= {verdict, "open"}
    assert all(one.cells for one in found.parts)
    assert verdict_on(trained(), claim).verdict == "open"


@pytest.mark.parametrize(("gap", "spread", "verdict"), [
    (0.0, 0.002, "holds"), (-0.02, 0.002, "holds"), (-0.05, 0.002, "refuted"), (0.05, 0.002, "refuted"),
    (-0.03, 0.002, "not shown"),
])  # fmt: skip
def test_a_rate_is_as_printed_within_three_points_to_either_side(gap, spread, verdict):
    found = verdict_on(trained() + as_printed(gap, spread), "The recovery rates are those")
    assert found.verdict == verdict
    assert bool(found.why) == (verdict != "holds")


@pytest.mark.parametrize(("gap", "verdict"), [(0.0, "holds"), (-0.05, "not shown"), (0.05, "refuted")])
def test_a_lower_rate_of_an_autoencoder_less_sharp_than_the_papers_denies_nothing(gap, verdict):
    claim = "The recovery rates are those"
    found = verdict_on(trained(sharp=25.4) + as_printed(gap), claim)
    assert found.verdict == verdict
    assert "less sharp" in found.reason
    assert "less sharp" not in verdict_on(trained(sharp=25.5) + as_printed(gap), claim).reason


def test_other_pictures_than_the_papers_are_not_compared_with_its_numbers():
    findings = trained(data="hmnist") + rate("table-4/cnn/hmnist/64", 0.9)
    found = verdict_on(findings, "The recovery rates are those")
    assert (found.verdict, "HAM10000" in found.reason) == ("open", True)


@pytest.mark.parametrize("share", [0.94, None])
def test_a_network_whose_autoencoder_loses_images_leaves_claims_open(share):
    findings = rate(f"{ROW}/512", 0.05) + ([] if share is None else trained(share=share))
    for claim in ("Large batches are recovered", "The recovery rates are those"):
        found = verdict_on(findings, claim)
        assert found.verdict == "open"
        assert ("brings 0.94 of images" if share else "is not done") in found.reason
    other = trained(data="fashion-mnist") + rate("table-4/cnn/fashion-mnist/512", 0.6)
    assert verdict_on(findings + other, "Large batches are recovered").verdict == "holds"


def test_where_an_auxiliary_image_passes_for_most_samples_no_rate_is_judged_by_it():
    hmnist = trained(data="hmnist") + rate("table-4/cnn/hmnist/512", 0.8, chance=0.96)
    found = verdict_on(hmnist, "Large batches are recovered")
    assert (found.verdict, "passes for 0.96" in found.reason) == ("open", True)
    both = verdict_on(hmnist + trained() + large(0.5), "Large batches are recovered")
    assert both.verdict == "holds"
    assert [one.where for one in both.parts if one.verdict == "holds"] == ["cnn (1024), cifar10, 512"]


def test_data_sets_that_differ_make_a_claim_mixed_and_are_not_averaged():
    findings = trained() + large(0.5) + trained(data="fashion-mnist")
    findings += rate("table-4/cnn/fashion-mnist/512", 0.2, chance=0.4)
    found = verdict_on(findings, "Large batches are recovered")
    assert found.verdict == "mixed"
    assert [one.verdict for one in found.parts] == ["holds", "refuted"]


def test_that_no_gradient_passes_refutes_that_two_layers_are_enough_and_bars_the_rest():
    findings = (
        trained("resnet") + refused("table-4/resnet/cifar10/64") + refused("table-4/resnet/cifar10/512")
    )
    found = verdict_on(findings, "Two linear layers")
    assert (found.verdict, "sum to zero" in found.why) == ("refuted", True)
    barred = verdict_on(findings, "Large batches are recovered")
    assert (barred.verdict, "cannot run" in barred.reason) == ("open", True)
    ran = trained("resnet") + rate("table-4/resnet/cifar10/64", 0.9)
    assert verdict_on(ran, "Two linear layers").verdict == "holds"


@pytest.mark.parametrize(("law", "other"), [("normal", "laplace"), ("laplace", "normal")])
def test_the_law_that_fits_better_is_the_one_that_counts(law, other):
    cell = "figure-6/alexnet/cifar10"
    gaps = [row(cell, law, DISTANCE, 0.03, 0.01), row(cell, other, DISTANCE, 0.2, 0.01)]
    found = verdict_on(trained("alexnet") + gaps, "The latents' brightness follows")
    assert found.verdict == "holds"
    assert f"distance from the {law} law" in found.reason


def test_a_fall_of_the_psnr_is_slight_up_to_five_decibels():
    made_up = starved(PSNR, 5, "0.01", 0.01)
    for fall, verdict in ((4.0, "holds"), (6.0, "refuted"), (5.0, "not shown")):
        assert verdict_on(trained() + made_up(fall), "With fewer auxiliary").verdict == verdict


def test_a_starved_attacker_needs_an_autoencoder_that_was_trained_far_enough_too():
    findings = trained() + hardly(5, "0.01", 0.01)(0.04)
    poor = [one for one in findings if one.cell != "autoencoder/cnn/cifar10/0.01"]
    found = verdict_on(poor + trained(granted="0.01", share=0.5), "The number of auxiliary images hardly")
    assert (found.verdict, "brings 0.50" in found.reason) == ("open", True)


def test_every_claim_of_the_paper_has_a_number_and_a_section_and_our_own_questions_a_letter():
    verdicts = ScaleMIAStudy().conclude([])
    paper, own = ([one for one in verdicts if one.own == kind] for kind in (False, True))
    assert [one.claim.partition(".")[0] for one in paper] == [str(k) for k in range(1, 30)]
    assert [one.claim.partition(".")[0] for one in own] == list("ABCDEFGHIJ")
    assert all(one.section.startswith(("section", "appendix")) and one.printed for one in paper)
    assert {one.verdict for one in verdicts} == {"open"}
    assert all(one.reason for one in verdicts)
