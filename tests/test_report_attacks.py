"""With many attacks and metrics the page leads with what matters, and keeps the rest findable."""

import re
from pathlib import Path

import numpy as np
import pytest
from report_runs import CROWD, Balanced, a_crowded_run, a_row, measured, page_of, text_of
from sklearn.metrics import roc_auc_score, roc_curve

from glasshouse.exhibits import Roc
from glasshouse.findings import from_row
from glasshouse.report import write_report
from glasshouse.report.figures.roc import area, roc_panels
from glasshouse.report.words.names import attack_words
from glasshouse.spelling import interval
from glasshouse.verdicts.answers import answers_by_adversary
from glasshouse.verdicts.measure import headline
from glasshouse.verdicts.metrics import metrics
from glasshouse.verdicts.pooling import pooled

EPSILON = {"metric": "epsilon", "attack": "canaries", "chance": 0.0, "high": None}


@pytest.fixture(scope="module")
def crowded(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_report(a_crowded_run(tmp_path_factory.mktemp("runs") / "crowd"))


def card_of(page: str, adversary: str) -> str:
    start = page.index(f'id="adversary-{adversary}"')
    return page[start : page.index("</article>", start)]


def a_roc(adversary: str, attack: str, defence: str = "none", tpr: float = 0.6) -> Roc:
    rates = {"fpr": (0.0, 0.5, 1.0), "tpr": (0.0, tpr, 1.0)}
    return Roc(adversary=adversary, attack=attack, defence=defence, **rates, members=9, nonmembers=9)


@pytest.mark.parametrize(
    ("low", "high", "judged"),
    [(1.2, None, "leak"), (0.0, None, "clear"), (None, None, "unjudged"), (None, 2.0, "unjudged")],
)
def test_a_lower_bound_is_a_leak_when_it_lies_above_chance(
    low: float | None, high: float | None, judged: str
) -> None:
    assert measured(**EPSILON | {"value": 1.2, "low": low, "high": high}).judged == judged


def test_an_upper_bound_is_a_leak_where_low_values_leak() -> None:
    fooled = {"family": "evasion", "metric": "robust-accuracy", "value": 0.2, "chance": 0.9}
    assert measured(**fooled, low=None, high=0.3).judged == "leak"
    assert measured(**fooled, low=0.1, high=None).judged == "unjudged"


def test_a_bound_is_written_with_the_end_it_has(tmp_path: Path) -> None:
    assert [interval(1.5, None), interval(None, 1.5)] == ["at least 1.500", "at most 1.500"]
    text = page_of(tmp_path, a_row(**EPSILON, value=1.5, low=1.5))
    assert "an epsilon of at least 1.500; an attack that learns nothing shows 0.000." in text
    assert "epsilon, lower bound 1.500 at least 1.500 0.000" in text


def test_bounds_over_seeds_keep_the_weakest() -> None:
    rows = [a_row(**EPSILON, seed=seed, value=v, low=v) for seed, v in enumerate((1.0, 2.0))]
    [measure] = pooled(map(from_row, rows))
    assert (measure.value, measure.low, measure.high) == (1.5, 1.0, None)


def test_a_bound_on_epsilon_is_not_weighed_against_an_auc() -> None:
    rows = [a_row(value=0.6, low=0.55, high=0.65), a_row(**EPSILON, value=3.0, low=3.0)]
    [card] = answers_by_adversary(pooled(map(from_row, rows)))
    assert card.answers[0].lead.row.metric == "auc"


@pytest.mark.parametrize("metric", ["train-accuracy", "train-test-gap", "null-auc"])
def test_what_is_no_leak_has_no_card(tmp_path: Path, metric: str) -> None:
    assert answers_by_adversary([measured(metric=metric)]) == []
    assert metrics()[metric].label in page_of(tmp_path, a_row(metric=metric))


def test_naming_the_client_that_held_a_record_is_a_question_of_its_own(tmp_path: Path) -> None:
    held = {"family": "source", "metric": "source-accuracy", "adversary": "curious server"}
    text = page_of(tmp_path, a_row(**held, value=0.31, low=0.27, high=0.35, chance=0.14))
    assert "Which client held this record?" in text
    assert "rightly in 31 of 100 cases; always naming the largest client would be right in 14." in text


def test_accuracy_among_mostly_members_is_set_against_always_saying_member(tmp_path: Path) -> None:
    ends = {"value": 0.9, "low": 0.88, "high": 0.92, "chance": 5 / 6}
    text = page_of(tmp_path, a_row(metric="accuracy-at-5:1", **ends))
    assert "is right in 90 of 100 cases where 5 of 6 records are members" in text
    assert "always saying member would be right in 83." in text


def test_details_stay_out_of_cards_and_in_the_findings(crowded: Path) -> None:
    page = crowded.read_text()
    assert "accuracy at 5:1" not in card_of(page, "outsider")
    assert "balanced accuracy" in card_of(page, "outsider")
    assert "accuracy at 5:1" in page[page.index('id="findings"') :]
    assert "TPR at 0.1% FPR" not in page[page.index('id="defences"') : page.index('id="roc"')]


def test_a_detail_leads_only_where_nothing_else_leaks() -> None:
    quiet = a_row(value=0.5, low=0.47, high=0.53)
    rare = a_row(metric="tpr-at-0.1%-fpr", value=0.05, low=0.03, high=0.07, chance=0.001)
    [card] = answers_by_adversary(pooled(map(from_row, [quiet, rare])))
    assert card.answers[0].lead.row.metric == "tpr-at-0.1%-fpr"
    assert card.answers[0].lines[0].lead is card.answers[0].lead
    assert [m.row.metric for m in card.answers[0].lines[0].others] == ["auc"]
    loud = a_row(value=0.6, low=0.57, high=0.63)
    [card] = answers_by_adversary(pooled(map(from_row, [loud, rare])))
    assert card.answers[0].lead.row.metric == "auc"
    assert card.answers[0].lines[0].others == ()


def test_a_detail_is_no_headline_where_there_is_another_metric() -> None:
    both = [measured(metric="advantage"), measured(metric="balanced-accuracy")]
    assert headline(both) == "balanced-accuracy"
    assert headline(both[:1]) == "advantage"


def test_the_attack_that_leads_is_shown_in_full_and_the_others_in_a_line_each(crowded: Path) -> None:
    card = card_of(crowded.read_text(), "outsider")
    assert card.count('<div class="line">') == 1
    assert card.count('<div class="line brief">') == len(CROWD)
    names = re.findall(r'<p class="attack"(?:><span)? title="([a-z-]+)', card)
    assert names[:6] == sorted(CROWD, key=lambda attack: -CROWD[attack])[:6]
    assert "AUC 0.720 (0.690 to 0.750)" in card


def test_what_cannot_be_estimated_is_said_once_for_all_attacks(crowded: Path) -> None:
    page = crowded.read_text()
    caveats = text_of(page[page.index('id="caveats"') :])
    assert caveats.count("Not estimable:") == 1
    attacks = f"{', '.join(list(CROWD)[:-1])} and {list(CROWD)[-1]}"
    assert (
        f"Not estimable: TPR at 0.1% FPR of {attacks} by the outsider; {attacks} by the curious server: "
        "700 non-members cannot resolve a rate of 0.001."
    ) in caveats


def test_an_attack_that_could_not_run_is_said_not_to_have_run(tmp_path: Path) -> None:
    missing = {"metric": "not-applicable", "value": None, "low": None, "high": None}
    text = page_of(tmp_path, a_row(**missing, reason="the model has no head"))
    assert "Not run: loss-threshold by the outsider: the model has no head." in text


def test_a_note_on_a_metric_is_not_taken_for_knowledge(tmp_path: Path) -> None:
    given = {"attack": "lira", "assumes": ["64 shadow models"]}
    bound = EPSILON | given | {"note": "a one-sided bound", "value": 1.0, "low": 1.0}
    text = page_of(tmp_path, a_row(**given), a_row(**bound))
    table = text[text.index("What each attack was given") :]
    assert "lira 64 shadow models" in table
    assert "one-sided" not in table


def test_few_attacks_have_a_roc_figure_each() -> None:
    curves = [a_roc("outsider", attack, defence) for attack in "abc" for defence in ("none", "clipping")]
    assert [(p.title, p.by, len(p.curves)) for p in roc_panels(curves)] == [
        ("a", "defence", 2), ("b", "defence", 2), ("c", "defence", 2),
    ]  # fmt: skip


def test_one_attack_by_two_adversaries_has_two_figures() -> None:
    titles = [panel.title for panel in roc_panels([a_roc("outsider", "gap"), a_roc("owner", "gap")])]
    assert titles == ["Outsider: gap", "Owner of the model: gap"]


def test_many_attacks_are_compared_without_a_defence_and_the_strongest_with_them() -> None:
    curves = [
        a_roc(who, attack, defence, 0.5 + strength / 10)
        for who in ("curious server", "outsider")
        for strength, attack in enumerate("abcd")
        for defence in ("none", "clipping")
    ]
    panels = roc_panels(curves)
    assert [(panel.title, panel.by) for panel in panels] == [
        ("Outsider: all attacks", "attack"),
        ("Curious server: all attacks", "attack"),
        ("Outsider: d", "defence"),
        ("Curious server: d", "defence"),
    ]
    assert [roc.attack for roc in panels[0].curves] == list("dcba")
    assert {roc.defence for roc in panels[0].curves} == {"none"}
    assert [roc.defence for roc in panels[2].curves] == ["none", "clipping"]


def test_there_are_never_more_than_eight_roc_figures() -> None:
    whos = ("outsider", "owner", "curious server", "blind server", "crafting server")
    curves = [a_roc(who, attack, defence) for who in whos for attack in "ab" for defence in ("none", "x")]
    assert len(roc_panels(curves)) == 8


def test_the_area_under_a_curve_is_the_auc() -> None:
    rng = np.random.default_rng(0)
    member = np.repeat([1, 0], 200)
    scores = np.round(rng.normal(member * 0.7, 1), 1)
    fpr, tpr, _ = roc_curve(member, scores)
    roc = Roc(attack="gap", fpr=tuple(fpr), tpr=tuple(tpr), members=200, nonmembers=200)
    assert area(roc) == pytest.approx(roc_auc_score(member, scores))


def test_a_crowded_page_has_a_panel_for_the_strongest_of_many_attacks(crowded: Path) -> None:
    page = crowded.read_text()
    Balanced().check(page)
    drawn = {path.stem for path in (crowded.parent / "figures").glob("privacy-*.svg")}
    assert {name for name in drawn if "outsider" in name} == {"privacy-outsider"}
    assert "The strongest of 8 attacks" in text_of(page)
    assert (
        "canaries" not in (crowded.parent / "figures" / "privacy-owner.svg").read_text()
    )  # no defence met it


def test_every_attack_is_in_the_table_of_what_defences_leave(crowded: Path) -> None:
    page = crowded.read_text()
    start = page.index('id="defences-table"')
    text = text_of(page[start : page.index("</table>", start)])
    assert "\N{EN DASH} \N{EN DASH} test accuracy 0.930 0.925" in text
    for attack, gain in CROWD.items():
        assert f"outsider {attack_words(attack)} AUC {0.5 + gain:.3f}" in text
