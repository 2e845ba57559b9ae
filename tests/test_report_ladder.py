"""Where on the ladder of realism a model falls: the last rung that beats the blind guess, as pages say."""

import dataclasses
import re

import pytest

from glasshouse.exhibits import Exhibits
from glasshouse.findings import Finding
from glasshouse.report.page import write_report
from glasshouse.report.tables.ladder import ladder_table
from glasshouse.report.words.ladder import ladder_sentence
from glasshouse.results import write_results
from glasshouse.verdicts.answers import answers_by_adversary
from glasshouse.verdicts.ladder import ladder
from glasshouse.verdicts.pooling import pooled

RUNGS = ("upper-bound", "labels-unknown", "batch", "local-steps")
BLIND, ORACLE = 11.0, 17.0


def found(cell, metric, value, *, low=None, chance=None, defence="none", **more):
    return Finding(
        source="audit",
        cell=cell,
        family=more.pop("family", "ladder"),
        adversary="curious server",
        attack="strongest-inversion(seconds=1)",
        defence=defence,
        strategy="fedavg",
        data="digits",
        model="lenet",
        metric=metric,
        value=value,
        low=low,
        high=None if low is None else value + 1,
        chance=chance,
        n=8,
        seed=0,
        note=f"the words of {cell}; and more",
        **more,
    )


def climbed(heights, defended=None, sent=None):
    """Findings of rungs at these PSNRs, whose intervals reach one down."""
    rungs = {f"ladder/{name}": (psnr, "none") for name, psnr in zip(RUNGS, heights)}
    rungs |= {f"ladder/defended/{name}": (psnr, name) for name, psnr in (defended or {}).items()}
    rows = []
    for cell, (psnr, defence) in rungs.items():
        rows.append(found(cell, "psnr", psnr, low=psnr - 1, chance=ORACLE, defence=defence))
        rows.append(found(cell, "mean-image-psnr", BLIND, defence=defence))
    if sent is not None:
        cell = "none/strongest-inversion(seconds=1)"
        rows.append(found(cell, "psnr", sent, low=sent - 1, chance=ORACLE, family="reconstruction"))
        rows.append(found(cell, "mean-image-psnr", BLIND, family="reconstruction"))
    return rows


def made(rows):
    return ladder(pooled(rows))


def test_a_model_falls_on_the_last_rung_whose_interval_beats_the_blind_guess():
    built = made(climbed([25, 19, 13, 11.5], sent=8))
    assert [step.name for step in built.steps] == [*RUNGS, "as-sent"]
    assert built.last_beaten.name == "batch"
    assert built.last_beyond_oracle.name == "labels-unknown"
    sentence = ladder_sentence(built)
    assert "This model falls on the rung “a batch”" in sentence
    assert "From “local steps” on they do not" in sentence
    assert "Up to “labels unknown” they come nearer than even the most similar image" in sentence


def test_a_defended_rung_shows_the_search_that_got_further():
    rows = climbed([25], defended={"pruning": 9})
    informed = [
        dataclasses.replace(row, attack="strongest-inversion(seconds=1,adaptive=True)", value=row.value + 5)
        for row in rows
        if row.defence == "pruning" and row.metric == "psnr"
    ]
    (step,) = made([*rows, *informed]).defended
    assert step.psnr.value == 14
    assert "adaptive" in step.psnr.row.attack


def test_where_the_upper_bound_fails_the_sentence_says_so():
    sentence = ladder_sentence(made(climbed([9, 9, 9, 9])))
    assert "Not even on the rung “upper bound”" in sentence
    assert "On none do they come nearer" in sentence


def test_where_every_rung_is_beaten_the_sentence_names_the_top():
    assert "Up to the top rung, “as clients sent them”" in ladder_sentence(made(climbed([30] * 4, sent=20)))


def test_defences_are_those_that_images_come_through_and_those_they_do_not():
    defended = {"clipping(norm=1.0)": 20, "gaussian-noise(std=0.05)": 8}
    sentence = ladder_sentence(made(climbed([25] * 4, defended)))
    through, held = re.search(r"rebuilt under (.+?)\. Under (.+?) nothing", sentence).groups()
    assert "clipping" in through.lower()
    assert "noise" in held.lower()


def test_a_rung_that_was_not_tried_is_no_success_and_says_why():
    rows = climbed([25, 19, 18])
    missing = found("ladder/local-steps", "not-applicable", None, reason="the clients train with adam")
    built = made([*rows, missing])
    assert built.last_beaten.name == "batch"
    assert "Up to the top rung, “a batch”" in ladder_sentence(built)
    faced = [row[1].text for row in ladder_table(built).rows]
    assert "not tried: the clients train with adam" in faced[-1]


def test_without_rungs_there_is_no_ladder():
    assert made([]) is None
    refused = found("ladder", "not-applicable", None, reason="no single update reaches the server")
    assert made([refused]) is None


def test_the_ladder_answers_for_no_adversary():
    assert answers_by_adversary(pooled(climbed([25] * 4))) == []


@pytest.mark.parametrize("sent", [None, 8])
def test_the_page_has_the_ladder_with_every_rung(tmp_path, sent):
    write_results(tmp_path, climbed([25, 19, 13, 11.5], {"clipping(norm=1.0)": 12}, sent), Exhibits())
    page = write_report(tmp_path).read_text()
    assert 'id="ladder"' in page
    for cell in ("ladder/upper-bound", "ladder/local-steps", "ladder/defended/clipping(norm=1.0)"):
        assert f"the words of {cell}" in page
    assert "an oracle" in page
