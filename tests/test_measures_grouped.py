"""Membership where whole users or clients were drawn: intervals cover the draw of these, and say how many."""

import dataclasses

import numpy as np
import pytest
from cases import question_about, scores
from conftest import make_images, make_plain_model
from report_runs import measured
from scipy.stats import norm

from glasshouse import Dataset, Setting
from glasshouse.auditing.experiment import prepare
from glasshouse.evidence.membership import MembershipScores
from glasshouse.exhibits import PARTS, Division, Holder
from glasshouse.measures import grouped, membership
from glasshouse.report.words.caveats import caveats

SHIFT = 1.0


def hospitals(rng, inside, outside, size=35):
    """Scores of records in hospitals of unequal size with a scanner each; members score higher."""
    sizes = rng.integers(size // 3, 2 * size, inside + outside)
    groups = np.repeat(np.arange(inside + outside), sizes)
    member = groups < inside
    scanners = rng.normal(size=inside + outside)
    return scanners[groups] + rng.normal(size=len(groups)) + SHIFT * member, member, groups


MEASURES = {
    "auc": (
        lambda scores, member, groups: grouped.auc(scores, member, groups),
        lambda scores, member: membership.auc(scores, member),
        norm.cdf(SHIFT / 2),
    ),
    "balanced-accuracy": (
        lambda scores, member, groups: grouped.balanced_accuracy(scores > SHIFT / 2, member, groups),
        lambda scores, member: membership.balanced_accuracy(scores > SHIFT / 2, member),
        norm.cdf(SHIFT / 2 / 2**0.5),
    ),
    "advantage": (
        lambda scores, member, groups: grouped.advantage(scores > SHIFT / 2, member, groups),
        lambda scores, member: membership.advantage(scores > SHIFT / 2, member),
        2 * norm.cdf(SHIFT / 2 / 2**0.5) - 1,
    ),
}


@pytest.mark.parametrize(("inside", "outside"), [(5, 5), (12, 4), (30, 20)])
@pytest.mark.parametrize("metric", MEASURES)
def test_intervals_cover_what_endless_hospitals_would_give(metric, inside, outside):
    over_groups, over_records, truth = MEASURES[metric]
    rng = np.random.default_rng(0)
    covered = covered_by_records = 0
    for _ in range(200):
        values, member, groups = hospitals(rng, inside, outside)
        wide, narrow = over_groups(values, member, groups), over_records(values, member)
        assert (wide.value, wide.n) == (pytest.approx(narrow.value), narrow.n)
        covered += wide.low <= truth <= wide.high
        covered_by_records += narrow.low <= truth <= narrow.high
    assert covered / 200 >= 0.91
    assert covered_by_records / 200 < 0.7


@pytest.mark.parametrize(("inside", "outside"), [(5, 5), (20, 12)])
def test_the_tpr_at_a_low_fpr_covers_what_endless_hospitals_would_give(inside, outside):
    rng = np.random.default_rng(0)
    truth = norm.sf(norm.isf(0.05) - SHIFT / 2**0.5)
    covered = covered_by_records = 0
    for _ in range(60):
        values, member, groups = hospitals(rng, inside, outside, size=100)
        wide = grouped.tpr_at_fpr(values, member, 0.05, groups)
        narrow = membership.tpr_at_fpr(values, member, 0.05)
        covered += wide.low <= truth <= wide.high
        covered_by_records += narrow.low <= truth <= narrow.high
    assert covered / 60 >= 0.9
    assert covered_by_records / 60 < 0.8


def test_copies_of_records_tell_no_more_than_the_records():
    rng = np.random.default_rng(0)
    member = np.arange(40) < 25
    values = rng.normal(size=40) + member
    once, copied = (
        grouped.auc(np.repeat(values, k), np.repeat(member, k), np.repeat(np.arange(40), k)) for k in (1, 7)
    )
    assert (copied.low, copied.high) == pytest.approx((once.low, once.high))
    narrow = membership.auc(np.repeat(values, 7), np.repeat(member, 7))
    assert narrow.high - narrow.low < (copied.high - copied.low) / 2


def test_sides_that_do_not_overlap_are_worth_their_hospitals():
    member = np.arange(600) < 300
    groups = np.arange(600) // 60  # five hospitals on either side
    apart = grouped.auc(np.where(member, 2.0, 1.0) + np.arange(600) / 1e6, member, groups)
    assert (apart.value, apart.high) == (1.0, 1.0)
    assert apart.low == pytest.approx(0.025 ** (1 / 5))
    decided = grouped.balanced_accuracy(member, member, groups)
    assert (decided.value, decided.high) == (1.0, 1.0)
    assert 0.5 < decided.low < 0.7


@pytest.mark.parametrize(("inside", "outside"), [(3, 9), (9, 3)])
def test_of_fewer_than_four_hospitals_on_a_side_there_is_no_interval(inside, outside):
    values, member, groups = hospitals(np.random.default_rng(0), inside, outside, size=300)
    for estimate in (
        grouped.auc(values, member, groups),
        grouped.balanced_accuracy(values > 0, member, groups),
        grouped.advantage(values > 0, member, groups),
        grouped.tpr_at_fpr(values, member, 0.01, groups),
    ):
        assert estimate.value is not None
        assert (estimate.low, estimate.high) == (None, None)
        assert f"{inside} trained on and {outside} held out, and it takes 4 of each" in estimate.note


def test_the_same_scores_have_the_same_interval():
    values = hospitals(np.random.default_rng(0), 6, 6, size=100)
    first, again = (grouped.tpr_at_fpr(values[0], values[1], 0.01, values[2]) for _ in range(2))
    assert first == again


def test_findings_go_by_hospitals_where_whole_ones_were_drawn_and_name_their_number():
    values, member, groups = hospitals(np.random.default_rng(0), 6, 5, size=60)
    question = question_about(make_images(len(member)), member)
    evidence = MembershipScores(values, values > 0)
    narrow = scores(evidence, question)["auc"].estimate
    drawn = dataclasses.replace(question.truth, by_user=True, groups=groups)
    judged = evidence.judge(dataclasses.replace(question, truth=drawn))
    for score in judged.scores[:4]:
        assert "6 trained on and 5 held out" in score.estimate.note
    wide = judged.scores[0].estimate
    assert wide.n == narrow.n == len(member)
    assert wide.high - wide.low > 1.5 * (narrow.high - narrow.low)
    [risk] = judged.exhibits.risk
    assert (risk.low, risk.high) == (pytest.approx(wide.low), pytest.approx(wide.high))

    unknown = dataclasses.replace(question, truth=dataclasses.replace(question.truth, by_user=True))
    bare = scores(evidence, unknown)["auc"].estimate
    assert (bare.value, bare.low) == (narrow.value, None)
    assert "whose records are whose is not known" in bare.note


def test_batches_of_records_of_several_hospitals_have_no_interval():
    values, member, groups = hospitals(np.random.default_rng(0), 6, 5, size=60)
    question = question_about(make_images(len(member)), member)
    batches = np.arange(20).reshape(10, 2)
    asked = dataclasses.replace(
        question,
        truth=dataclasses.replace(question.truth, by_user=True, groups=groups),
        batches=batches,
        member=np.arange(10) < 5,
    )
    estimate = scores(MembershipScores(values[:10], values[:10] > 0), asked)["auc"].estimate
    assert (estimate.low, estimate.high) == (None, None)
    assert "a batch mixes records of several" in estimate.note


WARDS = np.array([f"ward {number}" for number in np.random.default_rng(0).integers(0, 24, 480)])


@pytest.mark.parametrize(("told", "data"), [
    ({"clients": WARDS}, {"holdout": "whole-clients"}),
    ({"users": WARDS}, {"partition": "by-user", "holdout": "whole-clients"}),
    ({"users": WARDS}, {"partition": "by-user", "holdout": "whole-clients", "clients": 3}),
    ({"users": WARDS}, {"clients": 3}),
    ({"users": WARDS}, {"clients": 3, "partition": "by-user"}),
    ({"users": WARDS, "clients": np.resize(["north", "south"], 480)}, {}),
])  # fmt: skip
def test_every_candidate_is_put_to_the_user_or_client_that_was_drawn(told, data):
    experiment = prepare(Setting(data=data), Dataset("wards", make_images(480), **told), make_plain_model())
    truth = experiment.truth
    assert truth.by_user
    named = WARDS[truth.places]
    assert len(set(zip(named, truth.groups))) == len(set(named)) == len(set(truth.groups))
    assert not set(truth.groups[truth.holder >= 0]) & set(truth.groups[truth.holder < 0])


def test_where_single_records_are_drawn_intervals_are_over_records():
    experiment = prepare(Setting(), Dataset("wards", make_images(480), clients=WARDS), make_plain_model())
    assert not len(experiment.truth.groups)


@pytest.mark.parametrize(
    ("held_out", "said"), [("whole-clients", "Whole clients"), ("users", "Whole users"), ("images", "")]
)
def test_the_page_warns_where_whole_clients_or_users_are_held_out(held_out, said):
    labels = dict.fromkeys(PARTS, (9, 9))
    division = Division(holders=(Holder(name="a", members=18),), labels=labels, held_out=held_out)
    lines = [line for line in caveats([], [measured()], [division]) if "held out, not single records" in line]
    assert [line[: len(said)] for line in lines] == ([said] if said else [])
