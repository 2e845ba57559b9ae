"""What findings say without a page: pooling over seeds, the cheapest defence, and a claim."""

import doctest
import subprocess
import sys
from typing import Any

import numpy as np
import pytest
from report_runs import a_row, page_of

from glasshouse.access import Access
from glasshouse.exhibits import Robustness
from glasshouse.findings import from_row
from glasshouse.report.words.measures import expert
from glasshouse.report.words.names import ADVERSARIES
from glasshouse.verdicts import pooling
from glasshouse.verdicts.measure import BY_ACCESS, Measure
from glasshouse.verdicts.pooling import pooled, pooled_points
from glasshouse.verdicts.seeds import over_seeds
from glasshouse.verdicts.tradeoff import tradeoffs, worth


def over(
    *estimates: tuple[float, float | None, float | None], same_records: bool = False, **changes: object
) -> Measure:
    """The measure of one finding with these values and intervals, a seed each."""
    rows = [
        a_row(**changes, seed=seed, value=value, low=low, high=high)
        for seed, (value, low, high) in enumerate(estimates)
    ]
    [measure] = pooled(map(from_row, rows), same_records=same_records)
    return measure


def test_every_adversary_that_can_be_granted_access_has_a_place_and_words() -> None:
    kinds = Access.__subclasses__()
    for kind in kinds:
        kinds += kind.__subclasses__()
    granted = [kind for kind in kinds if kind.__module__ == Access.__module__]
    assert {kind.adversary for kind in granted} == set(BY_ACCESS)
    assert tuple(ADVERSARIES) == BY_ACCESS


def test_importing_verdicts_loads_neither_the_page_nor_torch() -> None:
    names = (
        "answers",
        "claims",
        "comparison",
        "decision",
        "exposure",
        "frontier",
        "informed",
        "limits",
        "measure",
        "metrics",
        "outcome",
        "pooling",
        "tradeoff",
        "weighing",
    )
    imports = ", ".join(f"glasshouse.verdicts.{name}" for name in names)
    code = f"import sys, {imports}; sys.exit(bool({{'torch', 'matplotlib', 'jinja2'}} & set(sys.modules)))"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


def test_one_seed_is_itself() -> None:
    measure = over((0.6, 0.55, 0.65))
    assert (measure.value, measure.low, measure.high) == (0.6, 0.55, 0.65)


def test_a_study_keeps_the_envelope_of_its_seeds() -> None:
    measure = over((0.6, 0.55, 0.65), (0.7, 0.66, 0.74), source="mia-bad")
    assert (measure.value, measure.low, measure.high) == pytest.approx((0.65, 0.55, 0.74))
    assert (measure.n, measure.values) == (1440, (0.6, 0.7))


def test_an_audits_interval_is_wider_where_its_seeds_disagree() -> None:
    agree = over(*[(0.6, 0.55, 0.65)] * 3)
    disagree = over((0.55, 0.5, 0.6), (0.6, 0.55, 0.65), (0.65, 0.6, 0.7))
    assert agree.value == disagree.value == pytest.approx(0.6)
    assert (agree.low, agree.high) == pytest.approx((0.6 - 0.05 / 3**0.5, 0.6 + 0.05 / 3**0.5))
    assert disagree.low is not None
    assert agree.low is not None
    assert disagree.low < agree.low - 0.05


@pytest.mark.parametrize("of", [{"strategy": None}, {"same_records": True}])
def test_more_seeds_do_not_narrow_what_the_same_records_leave_open(of: dict[str, Any]) -> None:
    measure = over(*[(0.6, 0.55, 0.65)] * 3, **of)
    assert (measure.low, measure.high) == pytest.approx((0.55, 0.65))
    assert measure.n == 720


def test_an_interval_stays_on_the_scale_and_is_as_lopsided_as_the_seeds() -> None:
    nothing = over(*[(0.0, 0.0, 0.02)] * 4)
    assert (nothing.low, nothing.high) == pytest.approx((0.0, 0.01))
    assert over((0.99, 0.9, 1.0), (0.9, 0.8, 0.96)).high == 1.0


def test_a_seed_without_an_interval_leaves_none() -> None:
    measure = over((0.6, 0.55, 0.65), (0.5, None, None))
    assert (measure.value, measure.low, measure.high) == (0.55, None, None)


@pytest.mark.parametrize("between", [0.0, 0.01, 0.02, 0.1])
@pytest.mark.parametrize("same", [False, True])
def test_an_interval_over_five_seeds_covers_the_mean_as_often_as_it_says(between: float, same: bool) -> None:
    """Simulated audits: each seed's training moves the true value, its records move what is measured."""
    rng = np.random.default_rng(0)
    within, covered = 0.02, 0
    for _ in range(400):
        records = rng.normal(0, within, 1 if same else 5)
        values = 0.6 + rng.normal(0, between, 5) + records
        ends = (list(values - 1.96 * within), list(values + 1.96 * within))
        low, high = over_seeds(list(values), *ends, same_records=same)
        covered += low <= 0.6 <= high
    assert covered / 400 >= 0.93


def test_the_docstring_of_pooling_holds() -> None:
    assert doctest.testmod(pooling).failed == 0


def test_curves_against_eps_are_averaged_over_seeds() -> None:
    there = {"attack": "pgd", "strategy": "fedavg", "eps": 0.1, "n": 100}
    apart = {"difference": -0.1, "difference_low": -0.2, "difference_high": 0.0}
    points = [Robustness(**there, **apart, seed=s, value=0.5, low=0.4, high=0.6) for s in range(4)]
    [point] = pooled_points(points)
    assert (point.value, point.low, point.high, point.n) == pytest.approx((0.5, 0.45, 0.55, 400))
    ends = (point.difference, point.difference_low, point.difference_high)
    assert ends == pytest.approx((-0.1, -0.15, -0.05))
    assert pooled_points(points[:1]) == points[:1]
    [same] = pooled_points(points, same_records=True)
    assert (same.low, same.high, same.n) == pytest.approx((0.4, 0.6, 100))
    assert (same.difference_low, same.difference_high) == pytest.approx((-0.2, 0.0))


def test_the_page_shows_the_spread_over_seeds_and_each_finding_once(tmp_path) -> None:
    values = (0.6, 0.62, 0.64)
    rows = [a_row(seed=seed, value=v, low=v - 0.02, high=v + 0.02) for seed, v in enumerate(values)]
    text = page_of(tmp_path, *rows)
    assert "3 seeds: 0.600 to 0.640" in text
    assert "All 1 findings" in text
    assert "Values are means over 3 seeds" in text
    assert "One seed." not in text


def test_one_seed_has_no_spread() -> None:
    assert "seed" not in expert(over((0.6, 0.55, 0.65)))


def test_a_gate_can_ask_for_the_cheapest_defence_that_stops_an_attack() -> None:
    utility = {"family": "utility", "adversary": None, "attack": None, "metric": "test-accuracy"}
    rows = []
    for defence, accuracy, value in (("none", 0.9, 0.7), ("clipping", 0.5, 0.5), ("pruning", 0.85, 0.52)):
        rows.append(a_row(**utility, defence=defence, value=accuracy, low=None, high=None))
        rows.append(a_row(defence=defence, value=value, low=value - 0.03, high=value + 0.03))
    [tradeoff] = tradeoffs(pooled(map(from_row, rows)))
    weighed = worth(tradeoff)
    assert weighed.effect == "stops"
    assert weighed.best is not None
    assert weighed.best.defence == "pruning"
    assert weighed.cost == pytest.approx(0.05)
    assert not weighed.may_be_luck


def under(defence: str, attack: str, value: float) -> dict[str, object]:
    """A row of an inversion by the curious server."""
    return a_row(
        family="reconstruction",
        adversary="curious server",
        metric="recovery-rate",
        cell=f"{defence}/{attack}",
        defence=defence,
        attack=attack,
        value=value,
        low=value - 0.05,
        high=value + 0.05,
        chance=0.1,
    )


def test_a_defence_is_judged_by_the_worse_of_who_knows_it_and_who_does_not() -> None:
    plain, informed = "dlg(steps=5)", "dlg(steps=5,adaptive=True)"
    rows = [
        under("none", plain, 0.9),
        under("pruning", plain, 0.1),
        under("pruning", informed, 0.8),
        under("clipping", plain, 0.4),
        under("noise", plain, 0.3),
        under("noise", informed, 0.2),
    ]
    [tradeoff] = tradeoffs(pooled(map(from_row, rows)))
    assert tradeoff.attack == plain
    assert {point.defence: point.leak.value for point in tradeoff.points} == {
        "none": 0.9, "pruning": 0.8, "clipping": 0.4, "noise": 0.3,
    }  # fmt: skip
    assert tradeoff.worse_if_known == ["pruning"]


def test_attacks_that_differ_in_more_than_their_knowledge_stay_apart() -> None:
    rows = [
        under("none", "dlg(seconds=1)", 0.9),
        under("none", "dlg(seconds=2)", 0.9),
        under("pruning", "dlg(seconds=2,adaptive=True)", 0.7),
    ]
    first, second = tradeoffs(pooled(map(from_row, rows)))
    assert [point.defence for point in first.points] == ["none"]
    assert [point.defence for point in second.points] == ["none", "pruning"]
