import json
from pathlib import Path

import pytest
from report_runs import (
    Balanced,
    a_rebuilt_run,
    a_row,
    a_run,
    measured,
    page_of,
    reconstruction_rows,
    text_of,
)

from glasshouse.findings import from_row
from glasshouse.report import write_report
from glasshouse.report.tables.findings import assumptions_table
from glasshouse.report.words.measures import caution, compact, noticed
from glasshouse.spelling import interval, number
from glasshouse.verdicts.answers import Answer, answers_by_adversary
from glasshouse.verdicts.pooling import pooled
from glasshouse.verdicts.tradeoff import tradeoffs


@pytest.fixture(scope="module")
def rebuilt(tmp_path_factory) -> str:
    return write_report(a_rebuilt_run(tmp_path_factory.mktemp("run"))).read_text()


def a_rate(**changes):
    there = {"family": "reconstruction", "adversary": "blind crafting server", "attack": "scale-mia"}
    return a_row(**there | {"metric": "recovery-rate", "chance": 0.03, "n": 256} | changes)


def the_answer(*rows) -> Answer:
    """The only answer on the only card."""
    ((answer,),) = [card.answers for card in answers_by_adversary(pooled(map(from_row, rows)))]
    return answer


def test_the_recovery_rate_leads_with_what_similar_images_would_do(tmp_path: Path) -> None:
    text = page_of(tmp_path, a_rate(value=0.94, low=0.91, high=0.96))
    assert "Can the server rebuild training images?" in text
    assert "rebuilds 94 of 100 training images" in text
    assert (
        "the most similar image it had before, which only someone who knows the original can pick, "
        "would do for 3." in text
    )


def test_reconstructions_are_weighed_against_accuracy_by_their_recovery_rate() -> None:
    made = [t for t in tradeoffs(pooled(map(from_row, reconstruction_rows()))) if t.attack == "scale-mia"]
    assert [point.leak.row.metric for point in made[0].points] == ["recovery-rate"] * 5
    assert made[0].points[0].leak.judged == "leak"
    assert made[0].points[-1].leak.judged == "below"


def test_exact_copies_lead_where_similar_images_would_do_as_well(tmp_path: Path) -> None:
    alike = a_rate(value=0.03, low=0.02, high=0.05, chance=0.13)
    exact = a_rate(metric="near-exact-rate", value=0.03, low=0.02, high=0.05, chance=0.0)
    defended = {"defence": "clipping", "value": 0.0, "low": 0.0, "high": 0.004}
    rows = [alike, exact, alike | defended, exact | defended]
    answer = the_answer(alike, exact)
    assert answer.lead.row.metric == answer.lines[0].lead.row.metric == "near-exact-rate"
    (trade,) = tradeoffs(pooled(map(from_row, rows)))
    assert [point.leak.judged for point in trade.points] == ["leak", "clear"]
    assert "rebuilds 3 of 100 training images almost exactly" in page_of(tmp_path, *rows)


def test_a_reconstruction_worse_than_a_guess_cannot_be_turned_round() -> None:
    below = {"value": 0.0, "low": 0.0, "high": 0.01, "chance": 0.03}
    assert caution(measured(**a_rate(**below))) == ""
    assert "turned round" in caution(measured(value=0.3, low=0.2, high=0.4))


def test_sharp_images_of_the_few_that_were_recovered_are_no_leak_of_their_own() -> None:
    none = a_rate(value=0.03, low=0.01, high=0.06)
    sharp = a_rate(metric="psnr-of-recovered", value=40.0, low=39.0, high=41.0, chance=None)
    answer = the_answer(none, sharp)
    assert answer.lead.row.metric == "recovery-rate"
    assert answer.lead.judged == "clear"
    assert [compact(m) for m in answer.lines[0].beside] == ["PSNR of recovered 40.0 dB (39.0 to 41.0 dB)"]


def test_what_kept_an_attack_from_more_stands_with_its_leading_number() -> None:
    given = ["300 auxiliary images"]
    rate = a_rate(value=0.4, low=0.3, high=0.5, assumes=given, note="two samples shared a bin")
    mean = a_rate(metric="psnr", value=20.0, low=19.0, high=21.0, chance=13.0, assumes=given)
    assert the_answer(rate, mean).lines[0].notes == ("two samples shared a bin",)


def test_what_blind_guesses_reach_is_no_leak_however_high_it_is() -> None:
    none = a_rate(value=0.03, low=0.01, high=0.06)
    guesses = [
        a_rate(metric=f"{guess}-recovery-rate", value=0.9, low=0.8, high=0.95, chance=None)
        for guess in ("mean-image", "single-guess")
    ]
    answer = the_answer(*guesses, none)
    assert (answer.lead.row.metric, answer.lead.judged) == ("recovery-rate", "clear")
    assert [compact(m) for m in answer.lines[0].beside] == [
        "recovery rate of the mean image 0.900 (0.800 to 0.950)",
        "recovery rate of the single guess 0.900 (0.800 to 0.950)",
    ]


def test_labels_read_with_the_images_do_not_answer_whether_images_can_be_rebuilt() -> None:
    none = a_rate(value=0.03, low=0.01, high=0.06)
    read = a_rate(metric="label-accuracy", value=1.0, low=0.9, high=1.0, chance=0.2)
    answer = the_answer(read, none)
    assert (answer.lead.row.metric, answer.lead.judged) == ("recovery-rate", "clear")


def test_the_most_exposed_image_is_shown_and_never_judged(tmp_path: Path) -> None:
    none = a_rate(value=0.03, low=0.01, high=0.06)
    there = {"low": None, "high": None, "chance": 19.8, "note": "the maximum of more images would be higher"}
    worst = a_rate(metric="most-exposed-psnr", value=39.7, **there)
    answer = the_answer(worst, none)
    assert (answer.lead.row.metric, answer.lead.judged) == ("recovery-rate", "clear")
    assert [m.judged for m in answer.lines[0].others] == ["unjudged"]
    text = page_of(tmp_path, worst, none)
    assert "PSNR of the most exposed image 39.7 dB, chance 19.8 dB, n = 256" in text
    assert (
        "so no verdict: scale-mia, PSNR of the most exposed image, blind crafting server: "
        "the maximum of more images would be higher." in text
    )


def test_how_near_images_came_is_drawn_by_step_with_both_guesses(rebuilt: str) -> None:
    text = text_of(rebuilt)
    assert "inverting-gradients, curious server: PSNR by step" in text
    assert (
        "Mean over 32 images of 4 attacked updates. Step 2400 was reached after 48.0 s on an update." in text
    )
    for line in ("nearest auxiliary images (an oracle)", "mean auxiliary image (blind)"):
        assert line in text
    assert text.index("PSNR by step") < text.index("dB, best")


def test_a_course_without_pictures_has_its_section(tmp_path: Path) -> None:
    a_run(tmp_path, [a_rate(value=0.94, low=0.91, high=0.96)], full=False)
    (tmp_path / "curves.json").write_text(json.dumps({"course": [{"step": 3, "seconds": 1.5, "psnr": 20.0}]}))
    text = text_of(write_report(tmp_path).read_text())
    assert "What it looks like" in text
    assert "Step 3 was reached after 1.500 s on an update." in text


def test_of_several_seeds_the_course_of_the_first_is_drawn(tmp_path: Path) -> None:
    a_run(tmp_path, [a_rate(value=0.94, low=0.91, high=0.96, seed=seed) for seed in (3, 4)], full=False)
    points = [{"step": 10 * seed, "seconds": 1.0, "psnr": 20.0, "seed": seed} for seed in (4, 3)]
    (tmp_path / "curves.json").write_text(json.dumps({"course": points}))
    text = text_of(write_report(tmp_path).read_text())
    assert "Step 30 was reached" in text
    assert "Step 40" not in text


def a_vetting(**changes):
    return a_rate(family="vetting", metric="vet-alarm", low=None, high=None, chance=None) | changes


@pytest.mark.parametrize(
    ("value", "n", "words"),
    [
        (1.0, 1, "Yes: glasshouse vet flags the model it sent."),
        (0.0, 1, "No: glasshouse vet finds nothing in the model it sent."),
        (1.0, 4, "Yes: glasshouse vet flags all 4 models it sent."),
        (0.0, 4, "No: glasshouse vet flags none of the 4 models it sent."),
        (0.75, 4, "In part: glasshouse vet flags 3 of the 4 models it sent."),
    ],
)
def test_vetting_says_how_many_of_the_models_sent_were_flagged(value, n, words) -> None:
    assert noticed(measured(**a_vetting(value=value, n=n))) == words


def test_a_vetting_that_failed_says_why() -> None:
    row = a_vetting(value=None, reason="the model has no linear layer")
    assert noticed(measured(**row)) == "Not known: the model has no linear layer."


def test_what_a_client_could_have_noticed_stands_in_the_answer_and_is_no_answer_itself() -> None:
    rate = a_rate(value=0.94, low=0.91, high=0.96)
    answer = the_answer(rate, a_vetting(value=1.0, n=1, note="511 rows are equal"))
    assert answer.family == "reconstruction"
    assert answer.lines[0].vetting is not None
    assert answer.lines[0].vetting.row.note == "511 rows are equal"


def test_the_signs_that_vetting_found_are_not_taken_for_what_the_attack_was_given() -> None:
    table = assumptions_table(pooled(map(from_row, reconstruction_rows())))
    assert table is not None
    given = {row[1].text: row[2].text for row in table.rows}
    assert (
        given["scale-mia"] == "300 auxiliary images from the same distribution, with labels; the sum, masked"
    )


def test_the_page_shows_reconstructions_under_their_attack_and_says_what_vetting_found(rebuilt: str) -> None:
    Balanced().check(rebuilt)
    text = text_of(rebuilt)
    assert "scale-mia, blind crafting server original result 34.1 dB, best" in text
    assert text.index("dB, best") < text.index("dB, median") < text.index("dB, worst")
    assert "Would a client have noticed? scale-mia Yes: glasshouse vet flags the model it sent." in text
    assert "preparation 212.4 s" in text
    assert "reconstruction 0.041 s" in text


def test_decibels_have_one_decimal_whatever_their_size() -> None:
    assert interval(9.5442, 10.98, "dB") == "9.5 to 11.0 dB"
    assert number(7.44, "dB") == "7.4 dB"
    assert number(0.0413, "s") == "0.041 s"
