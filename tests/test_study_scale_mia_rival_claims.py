"""What the study says of rivals, of clients that look, of real sums and of attackers who know."""

import pytest
from scale_mia_findings import alone, rate, refused, row, trained, verdict_on

from glasshouse.studies.scale_mia.cells import (
    ALARM,
    BLIND,
    CODED,
    DRAWN,
    ONLINE,
    PEELED,
    PSNR,
    PUBLISHED,
    RETURNED,
)
from glasshouse.studies.scale_mia.rival_claims import ROBBING

SEARCH, SHORT = "inverting-gradients", "inverting-gradients(steps=480)"


def met(spec, batch, psnr=10.0, recovered=0.0, spread=0.1, seconds=50.0, network="cnn", blind=9.0):
    """What an attack reached in its cell of Table 3."""
    cell = f"table-3/{network}/{spec.partition('(')[0]}/{batch}"
    return [
        *rate(cell, recovered, spec),
        row(cell, spec, RETURNED, psnr, spread),
        row(cell, spec, PSNR, psnr, spread),
        row(cell, spec, BLIND, blind, spread),
        row(cell, spec, ONLINE, seconds, seconds / 100),
    ]


def ours(batch, psnr=20.0, seconds=0.01, network="cnn", attack=PUBLISHED, **more):
    cell = f"table-3/{network}/scale-mia/{batch}"
    made = met(attack, batch, psnr, 0.9, seconds=seconds, network=network, **more)
    assert {one.cell for one in made} <= {cell, f"table-3/{network}/{attack.partition('(')[0]}/{batch}"}
    return [one for one in made if one.cell == cell] or [_at(one, cell) for one in made]


def _at(one, cell):
    return type(one)(**{**vars(one), "cell": cell})


@pytest.mark.parametrize(("spec", "theirs", "verdict"), [
    (SEARCH, 10.0, "holds"), (SEARCH, 30.0, "refuted"), (SEARCH, 20.0, "not shown"),
    (SHORT, 10.0, "open"), (SHORT, 30.0, "refuted"), (SHORT, 20.0, "open"),
])  # fmt: skip
def test_scale_mia_is_compared_with_each_search_unless_a_longer_one_might_win(spec, theirs, verdict):
    findings = trained() + ours(1) + met(spec, 1, theirs)
    found = verdict_on(findings, "Scale-MIA rebuilds images better")
    assert found.verdict == verdict
    if verdict == "open":
        assert "480 of 4,800 steps" in found.reason


def test_where_the_published_attack_cannot_run_our_head_is_compared_in_a_question_of_its_own():
    cell = "table-3/resnet/scale-mia/1"
    findings = trained("resnet") + refused(cell) + ours(1, network="resnet", attack=CODED)
    findings += met(SEARCH, 1, network="resnet")
    found = verdict_on(findings, "Scale-MIA rebuilds images better")
    assert (found.verdict, "cannot run" in found.reason) == ("open", True)
    assert verdict_on(findings, "Does our head rebuild images better").verdict == "holds"


@pytest.mark.parametrize(("psnr", "verdict"), [(60.0, "holds"), (15.0, "refuted"), (20.0, "not shown")])
def test_robbing_the_fed_is_compared_in_what_was_recovered(psnr, verdict):
    findings = trained() + ours(64) + met("robbing-the-fed", 64, psnr)
    assert verdict_on(findings, "Robbing the Fed rebuilds them").verdict == verdict


@pytest.mark.parametrize(("more", "verdict"), [(5.0, "holds"), (-5.0, "refuted"), (0.0, "not shown")])
def test_the_psnr_of_small_and_large_batches_is_compared(more, verdict):
    findings = trained() + ours(2) + ours(64, 20.0 + more)
    assert verdict_on(findings, "Scale-MIA's PSNR rises").verdict == verdict
    rivals = met(SEARCH, 1, 20.0) + met(SEARCH, 4, 25.0) + met(SEARCH, 8, 20.0 - more)
    assert verdict_on(rivals, "All other attacks get worse").verdict == verdict


def test_a_search_that_shows_nothing_has_nothing_to_lose():
    found = verdict_on(met(SEARCH, 1, 8.0) + met(SEARCH, 8, 7.0), "All other attacks get worse")
    assert (found.verdict, "nothing to lose: 8.0 dB at 1" in found.reason) == ("open", True)


@pytest.mark.parametrize(("spec", "seconds", "verdict"), [
    (SEARCH, 50.0, "holds"), (SHORT, 50.0, "holds"), (SEARCH, 0.1, "refuted"), (SHORT, 0.1, "open"),
])  # fmt: skip
def test_a_search_is_timed_against_scale_mia_at_the_same_batch(spec, seconds, verdict):
    found = verdict_on(ours(1) + met(spec, 1, seconds=seconds), "A search takes more than")
    assert found.verdict == verdict


@pytest.mark.parametrize(("seconds", "verdict"), [(0.1, "holds"), (5.0, "refuted")])
def test_a_batch_is_rebuilt_in_less_than_a_second_or_not(seconds, verdict):
    findings = ours(256, seconds=seconds) + met("robbing-the-fed", 256, seconds=seconds)
    assert verdict_on(findings, "Scale-MIA and Robbing the Fed rebuild").verdict == verdict


@pytest.mark.parametrize(("spec", "small", "large", "verdict"), [
    (SEARCH, 0.9, 0.0, "holds"), (SEARCH, 0.9, 0.5, "mixed"), (SEARCH, 0.0, 0.0, "mixed"),
    (SHORT, 0.9, 0.0, "holds"), (SHORT, 0.9, 0.5, "mixed"), (SHORT, 0.0, 0.0, "open"),
])  # fmt: skip
def test_that_searches_fail_in_large_batches_takes_one_that_works_in_small_ones(spec, small, large, verdict):
    findings = met(spec, 1, recovered=small) + met(spec, 16, recovered=large)
    found = verdict_on(findings, "Searches in one client's update")
    assert found.verdict == verdict
    if spec == SHORT and not large:
        assert "480 of 4,800 steps" in found.reason


@pytest.mark.parametrize(("psnr", "verdict"), [(20.0, "holds"), (5.0, "refuted"), (9.0, "not shown")])
def test_attacks_that_work_at_scale_beat_the_mean_image(psnr, verdict):
    findings = trained() + ours(256, psnr) + met("robbing-the-fed", 256, psnr) + met("fishing", 64, psnr)
    found = verdict_on(findings, "Fishing, Robbing the Fed and Scale-MIA still work")
    assert (found.verdict, len(found.parts)) == (verdict, 3)


@pytest.mark.parametrize(("flags", "verdict"), [
    ([1.0] * 400, "refuted"), ([0.0] * 400, "holds"), ([1.0, 0.0], "not shown"),
])  # fmt: skip
def test_stealth_is_judged_by_what_a_client_flags_beside_an_attack_that_changes_the_network(flags, verdict):
    findings = [
        row(f"table-3/cnn/{name}/{k}", spec, ALARM, flag, None)
        for name, spec, alarms in (("scale-mia", PUBLISHED, flags), ("robbing-the-fed", ROBBING, [1.0] * 400))
        for k, flag in enumerate(alarms)
    ]
    found = verdict_on(findings, "Scale-MIA is stealthier")
    assert found.verdict == verdict
    assert len(found.cells) == len(flags) + 400


@pytest.mark.parametrize(("claim", "attack"), [
    ("Differential privacy does not stop it", PUBLISHED),
    ("Does who knows the clipping", "scale-mia-coded(norm=1.0)"),
])  # fmt: skip
@pytest.mark.parametrize(("left", "verdict"), [(0.5, "holds"), (0.0, "refuted"), (0.1, "not shown")])
def test_privacy_is_judged_at_the_usual_noise(claim, attack, left, verdict):
    findings = rate("dp/0", 0.9, attack) + rate("dp/1", left, attack)
    assert verdict_on(findings, claim).verdict == verdict


def test_what_nobody_measured_is_open_and_says_so():
    found = verdict_on([], "In place of a search")
    assert (found.verdict, "does not measure it" in found.reason) == ("open", True)


@pytest.mark.parametrize(("claim", "attack"), [
    ("Does secure aggregation with entries of 22 bits stop it as published", PUBLISHED),
    ("Do 22 bits stop it with the last layer drawn", DRAWN),
])  # fmt: skip
def test_that_rounding_stops_it_is_judged_for_each_batch_size_alone(claim, attack):
    findings = rate("heads/22/64", 0.5, attack) + rate("heads/22/256", 0.147, attack)
    findings += rate("heads/22/512", 0.01, attack) + rate("heads/16/64", 0.0, attack)
    found = verdict_on(findings, claim)
    assert found.verdict == "mixed"
    assert {one.where: one.verdict for one in found.parts} == {
        "batch of 64": "refuted", "batch of 256": "refuted", "batch of 512": "holds",
    }  # fmt: skip


@pytest.mark.parametrize(("coded", "verdict"), [(0.68, "holds"), (0.5, "refuted"), (0.65, "not shown")])
def test_our_head_behind_rounding_is_compared_with_the_published_one_in_an_exact_sum(coded, verdict):
    exact = rate("table-4/cnn/cifar10/512", 0.7) + rate("table-4/cnn/cifar10/512", 0.7, DRAWN)
    findings = exact + [
        one for bits in (22, 16) for one in rate(f"heads/{bits}/512", coded, CODED, spread=0.01)
    ]
    assert verdict_on(findings, "Does our head find as much").verdict == verdict


@pytest.mark.parametrize(("gap", "verdict"), [(0.01, "holds"), (-0.06, "refuted"), (-0.03, "not shown")])
def test_the_last_layer_drawn_is_compared_with_the_printed_rates(gap, verdict):
    findings = trained() + rate("table-4/cnn/cifar10/1024", 0.4947 + gap, DRAWN)
    assert verdict_on(findings, "Are the rates those of Table 4").verdict == verdict


@pytest.mark.parametrize(("coded", "verdict"), [(0.5, "holds"), (0.05, "refuted"), (0.1, "not shown")])
def test_our_head_is_judged_in_networks_with_two_linear_layers_too(coded, verdict):
    findings = trained("resnet") + rate("table-4/resnet/cifar10/512", coded, CODED)
    assert verdict_on(findings, "Does our head recover large batches").verdict == verdict


@pytest.mark.parametrize(("peeled", "verdict"), [(0.98, "holds"), (0.61, "refuted"), (0.66, "not shown")])
def test_collisions_are_judged_where_a_third_of_the_samples_collide(peeled, verdict):
    findings = trained()
    for batch, share in ((64, 0.94), (512, 0.607)):
        cell = f"table-4/cnn/cifar10/{batch}"
        findings += (
            rate(cell, 0.61, spread=0.02) + rate(cell, peeled, PEELED, spread=0.02) + alone(cell, share)
        )
    found = verdict_on(findings, "Are samples that share a bin found")
    assert found.verdict == verdict
    assert [one.where for one in found.parts] == ["cnn (1024), cifar10, 512"]


@pytest.mark.parametrize(("left", "verdict"), [(0.5, "holds"), (0.0, "refuted"), (0.1, "not shown")])
def test_several_local_steps_are_judged_without_the_single_one(left, verdict):
    findings = rate("local-steps/1", 0.9) + rate("local-steps/5", left) + rate("local-steps/5", left, CODED)
    found = verdict_on(findings, "Does it work where clients take several")
    assert (found.verdict, len(found.parts)) == (verdict, 2)


@pytest.mark.parametrize(("weights", "verdict"), [(0.3, "holds"), (0.49, "refuted"), (0.45, "not shown")])
def test_rates_where_weights_are_sent_are_compared_with_those_of_gradients(weights, verdict):
    exact = rate("table-4/cnn/cifar10/1024", 0.5) + rate("table-4/cnn/cifar10/1024", 0.5, DRAWN)
    found = verdict_on(exact + rate("weights/1024", weights), "Does it find less, as published")
    assert found.verdict == verdict
    assert list(found.cells) == ["weights/1024", "table-4/cnn/cifar10/1024"]
