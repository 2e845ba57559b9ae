"""Verdicts on claims: what a part says, how parts make a verdict, and intervals over seeds and records."""

import numpy as np
import pytest
from scipy import stats

from glasshouse.measures.estimate import Estimate, proportion
from glasshouse.verdicts.claims import ABOVE, Claim, Part, correction, settle
from glasshouse.verdicts.seeds import across_seeds


def _around(value, reach=0.01, n=1000):
    return Estimate(value, value - reach, value + reach, n)


def _verdict(*parts, **more):
    (verdict,) = settle([Claim("1. a claim", parts, **more)])
    return verdict


def _part(value, reach=0.01, **more):
    return Part("here", "a gain", [_around(value, reach)], ["cell"], **more)


@pytest.mark.parametrize(("values", "verdict"), [
    ((0.1, 0.2), "holds"),
    ((-0.1, -0.2), "refuted"),
    ((0.1, -0.1), "mixed"),
    ((0.1, -0.1, 0.001), "mixed"),
    ((0.1, 0.001), "holds in part"),
    ((-0.1, 0.001), "refuted in part"),
    ((0.001, -0.001), "not shown"),
    ((), "open"),
])  # fmt: skip
def test_a_verdict_is_what_all_parts_say(values, verdict):
    assert _verdict(*map(_part, values)).verdict == verdict


def test_an_effect_below_the_margin_denies_a_claim_though_it_is_surely_there():
    small = _part(0.004, 0.001, holds=ABOVE, refuted=(-np.inf, 0.01))
    assert _verdict(small).verdict == "refuted"
    assert _verdict(_part(0.02, 0.001, holds=ABOVE, refuted=(-np.inf, 0.01))).verdict == "holds"


def test_a_flat_claim_is_denied_on_either_side():
    for value, verdict in ((0.0, "holds"), (0.3, "refuted"), (-0.3, "refuted"), (0.1, "not shown")):
        assert _verdict(_part(value, holds=(-0.1, 0.1))).verdict == verdict


def test_what_cannot_be_judged_is_open_and_takes_no_part():
    barred = _part(-0.5, barred="not trained far enough")
    assert _verdict(barred).verdict == "open"
    assert _verdict(barred).reason == "not trained far enough"
    both = _verdict(barred, _part(0.5))
    assert both.verdict == "holds"
    assert "open in 1 of 2: not trained far enough" in both.reason


def test_a_verdict_names_its_cells_and_why_it_differs():
    verdict = _verdict(
        _part(-0.5), section="section 3", printed="0.2", why={"refuted": "too short", "holds": "no"}
    )
    assert verdict.cells == ["cell"]
    assert (verdict.section, verdict.printed, verdict.why) == ("section 3", "0.2", "too short")
    assert "[-0.510, -0.490], n = 1,000" in verdict.reason


def test_a_reason_has_the_interval_of_each_part_or_the_range_of_many():
    few = _verdict(_part(0.2), _part(-0.3)).reason
    assert few == (
        "a gain, here: +0.200 [+0.190, +0.210], n = 1,000 (holds); "
        "here: -0.300 [-0.310, -0.290], n = 1,000 (refuted)"
    )
    many = [Part(str(k), "a gain", [_around(k / 10)], [], unit="dB") for k in range(1, 7)]
    lone = Part("there", "a gain", [_around(-0.1)], [], unit="dB")
    other = Part("there", "a loss", [_around(-0.2)], [])
    assert _verdict(*many, lone, other).reason == (
        "a gain: holds in 6 of 7 (+0.100 to +0.600 dB); refuted in 1 of 7 (-0.100 dB) on there; "
        "a loss: refuted (-0.200)"
    )


def test_more_claims_take_wider_intervals():
    alone = settle([Claim("1.", [_part(0.011)])])
    many = settle([Claim(f"{k}.", [_part(0.011)]) for k in range(1, 21)])
    assert alone[0].verdict == "holds"
    assert {verdict.verdict for verdict in many} == {"not shown"}
    assert many[0].level == pytest.approx(1 - 0.05 / 20)
    own = settle([Claim("1.", [_part(0.011)]), *(Claim(f"{k}", [_part(0.011)], own=True) for k in "ABC")])
    assert own[0].verdict == "holds"
    assert "1 claims of the paper" in correction(own)
    assert "98.33% intervals" in correction(own)


def test_of_many_true_nothings_a_page_rarely_calls_any_an_effect():
    rng, wrong = np.random.default_rng(0), 0
    for _ in range(300):
        draws = rng.normal(0, 1, (10, 2))
        claims = [
            Claim(str(k), [Part("", "", [_around(x, 1.96) for x in seeds], [])])
            for k, seeds in enumerate(draws)
        ]
        wrong += any(verdict.verdict != "not shown" for verdict in settle(claims))
    assert wrong <= stats.binom.ppf(0.999, 300, 0.07)


def test_seeds_that_agree_have_the_interval_of_their_records():
    over = across_seeds([proportion(1000, 1000)] * 3, bounds=(0.0, 1.0))
    assert over.low > 0.997
    assert over.n == 3000
    shared = across_seeds([_around(0.5), _around(0.5)], same_records=True)
    assert (shared.low, shared.high) == pytest.approx((0.49, 0.51))


def test_seeds_that_disagree_widen_it():
    apart = across_seeds([_around(0.4), _around(0.5), _around(0.6)])
    bare = across_seeds([Estimate(v, None, None, 1) for v in (0.4, 0.5, 0.6)])
    assert apart.high - apart.low > 0.95 * (bare.high - bare.low)
    assert bare.high - 0.5 == pytest.approx(stats.t.ppf(0.975, 2) * 0.1 / np.sqrt(3))


def test_an_interval_over_rounds_is_widened_by_their_number_and_not_by_that_of_their_samples():
    wide = across_seeds([_around(0.5, 0.1, n=2048)], level=0.998, groups=8)
    assert wide.high - 0.5 == pytest.approx(0.1 * stats.t.ppf(0.999, 7) / stats.t.ppf(0.975, 7))
    assert wide.n == 2048


@pytest.mark.parametrize("between", [0.0, 0.5, 2.0])
def test_the_interval_over_seeds_covers_the_mean(between):
    rng, covered, trials = np.random.default_rng(1), 0, 2000
    for _ in range(trials):
        values = rng.normal(0, between, 3) + rng.normal(0, 1, 3)
        over = across_seeds([_around(value, 1.959964) for value in values])
        covered += over.low <= 0 <= over.high
    assert covered / trials >= 0.92
