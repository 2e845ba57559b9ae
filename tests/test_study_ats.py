"""The study ats: its cells on the digits, against what they are made of."""

import json
from dataclasses import replace

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from torch import nn

from glasshouse.api import study as run_study
from glasshouse.defences import make_defences
from glasshouse.defences.policies.candidates import effects
from glasshouse.defences.policies.policy import Policy
from glasshouse.evidence.reconstruction import Snapshot
from glasshouse.findings import Subject
from glasshouse.learning.engine import Engine
from glasshouse.learning.fit import fit
from glasshouse.learning.layout import Layout, read_vector
from glasshouse.measures.pictures import paired_psnr
from glasshouse.progress import Progress
from glasshouse.report.run import read_run
from glasshouse.studies.ats import cells, training, victims
from glasshouse.studies.ats.arms import PERTURBATIONS, policy_of
from glasshouse.studies.ats.cells import ORIGINAL, TRANSFORMED, VISIBLE, ArmCell, Task, of_image
from glasshouse.studies.ats.claimed import CLAIMS
from glasshouse.studies.ats.grid import SCALES, ATSStudy
from glasshouse.studies.ats.printed import (
    BEST_FIVE,
    HYBRID,
)
from glasshouse.studies.ats.scoring import best_five_overlap, distinct_indices
from glasshouse.studies.ats.training import Learner, PerturbedGradients, Watching
from glasshouse.studies.study import Workplace

LEARNER = Learner("digits", "lenet", 100, 2, 60, batch=16, precision="float32")
POLICY = policy_of("3-1-7+43-18-18")
SUBJECT = Subject(source="ats")
TABLE = "table-1/digits/lenet"


@pytest.fixture(scope="module")
def ats(tmp_path_factory):
    """Table 1 of the smoke scale without a policy and with the hybrid."""
    folder = tmp_path_factory.mktemp("ats") / "run"
    for pattern in ("training/*/none", f"{TABLE}/none", f"{TABLE}/hybrid"):
        run_study("ats", scale="smoke", cells=pattern, out=folder, workers=1, quiet=True)
    return folder


@pytest.fixture
def place(tmp_path):
    with Engine(1) as engine:
        yield Workplace(engine, 4, tmp_path / "cell", tmp_path / "shared", Progress(quiet=True))


def rows_of(folder):
    rows = json.loads((folder / "results.json").read_text())
    return {(row["cell"], row["attack"], row["metric"]): row for row in rows}


def test_every_attack_is_scored_against_both_images_and_each_image_has_its_row(ats):
    rows = rows_of(ats)
    attacks = {(cell, attack) for cell, attack, _ in rows if cell.startswith(TABLE)}
    assert len(attacks) == 2 + 4  # who knows the hybrid attacks it too, in two ways
    for cell, attack in attacks:
        for metric in (TRANSFORMED, VISIBLE, ORIGINAL):
            whole = rows[cell, attack, metric]
            images = [rows[cell, attack, of_image(metric, number)] for number in range(3)]
            assert whole["n"] == len(images)
            assert whole["value"] == pytest.approx(np.mean([image["value"] for image in images]))
            assert whole["chance"] == pytest.approx(np.mean([image["chance"] for image in images]))
            assert whole["low"] <= whole["value"] <= whole["high"]


def test_without_a_policy_both_images_are_one(ats):
    for (cell, attack, metric), row in rows_of(ats).items():
        if cell == f"{TABLE}/none" and metric == TRANSFORMED:
            assert row["value"] == rows_of(ats)[cell, attack, ORIGINAL]["value"]


def test_findings_name_what_the_attacker_was_given(ats):
    for (cell, attack, _), row in rows_of(ats).items():
        if cell.startswith(TABLE):
            assert any("images of each class" in words for words in row["assumes"])
            assert any("defences" in words for words in row["assumes"]) == ("adaptive=True" in attack)
            assert "upper bound" in row["note"]


def test_likeness_is_kept_at_every_step_that_the_search_shows(ats):
    metrics = {metric for cell, _, metric in rows_of(ats) if cell == f"{TABLE}/hybrid"}
    for part in cells.SIMILARITIES:
        assert {cells.at_step(cells.gradsim(part), step) for step in (0, 6, 12)} <= metrics


def test_the_page_shows_tables_charts_and_pictures(ats):
    run = read_run(ats)
    titles = [table.title for table in run.study.tables]
    assert any(title.startswith("Tables 1 and 3: digits, lenet") for title in titles)
    assert any(title.startswith("Each image") for title in titles)
    names = [chart.name for chart in run.study.charts]
    assert "likeness-shallow-digits-lenet" in names
    assert len(run.curves.gallery) == (2 + 4) * 3
    assert all((ats / picture.original).exists() for picture in run.curves.gallery)
    assert all((ats / picture.result).exists() for picture in run.curves.gallery)
    assert {verdict.verdict for verdict in run.study.verdicts} == {"open"}


def test_images_that_are_done_are_not_attacked_again(ats, monkeypatch):
    before = rows_of(ats)
    (ats / "work" / f"{TABLE}/hybrid/seed-0000.json").unlink()
    monkeypatch.setattr(cells, "attack", lambda *_, **__: pytest.fail("a finished image was attacked again"))
    run_study("ats", scale="smoke", cells=f"{TABLE}/hybrid", out=ats, workers=1, quiet=True)
    assert rows_of(ats) == before


def test_an_update_is_minus_the_gradient_of_the_transformed_image(place):
    model = training.trained(LEARNER, "none", place)
    victim = victims.make_victim(model, POLICY, 1, 7, subject=SUBJECT)
    image = training.materials_of(LEARNER).test[1:2]
    assert torch.equal(victim.original, image.x)
    assert not torch.equal(victim.transformed, image.x)
    F.cross_entropy(model.network(victim.transformed), image.y).backward()
    gradient = torch.cat([part.grad.reshape(-1) for part in model.network.parameters()])
    (observed,) = victim.case.rounds
    (update,) = observed.delivery.updates
    assert torch.allclose(update.delta[: len(gradient)], -gradient, atol=1e-7)
    halved = victims.make_victim(model, POLICY, 1, 7, factor=0.5, subject=SUBJECT)
    assert torch.allclose(halved.case.rounds[0].delivery.mean, update.delta / 2, atol=1e-7)


def test_scoring_repeats_the_draw_of_the_image_and_each_image_has_its_own(place):
    model = training.trained(LEARNER, "none", place)
    drawn = [victims.make_victim(model, POLICY, number, 7, subject=SUBJECT) for number in range(8)]
    for victim in drawn:
        assert torch.equal(victim.transform(victim.original), victim.transformed)
    first = drawn[0].original
    assert any(not torch.equal(victim.transform(first), drawn[0].transformed) for victim in drawn[1:])


def test_what_is_visible_of_an_image_does_not_count_what_was_filled_in(place):
    """Who finds the frame alone has found nothing, and a guess is not better for knowing where it is."""
    model = training.trained(LEARNER, "none", place)
    victim = victims.make_victim(model, policy_of("3"), 1, 7, subject=SUBJECT)  # shifted by 4 of 8 pixels
    visible = victim.visible
    assert visible.sum() == 8 * 4
    frame = victim.transformed.clone()
    frame[..., visible] = 0.5
    grey = torch.full_like(frame, 0.5)
    assert torch.equal(frame[..., ~visible], victim.transformed[..., ~visible])
    scores = [victims._psnr(victim.transformed, guess, visible) for guess in (frame, grey)]
    assert scores[0] == pytest.approx(scores[1])
    assert victims._psnr(victim.transformed, frame) > victims._psnr(victim.transformed, grey) + 2
    assert victims.make_victim(model, "none", 1, 7, subject=SUBJECT).visible.all()
    assert victims._psnr(grey, grey, torch.zeros(8, 8, dtype=torch.bool)) == 0


def test_perturbations_act_on_what_is_attacked(place):
    model = training.trained(LEARNER, "none", place)
    plain, pruned = (
        victims.make_victim(model, defence, 0, 7, subject=SUBJECT).case.rounds[0].delivery.mean
        for defence in ("none", PERTURBATIONS["pruning-95"])
    )
    trainable = Layout.of(model.network).trainable
    assert (pruned[:trainable] == 0).float().mean() >= 0.9
    kept = pruned != 0
    assert torch.equal(pruned[kept], plain[kept])


def test_the_angle_does_not_see_half_the_loss(place):
    model = training.trained(LEARNER, "none", place)
    spec, auxiliary = "adam-cosine(steps=5)", training.materials_of(LEARNER).train
    guesses = []
    for factor in (1.0, 0.5):
        victim = victims.make_victim(model, "none", 0, 7, factor=factor, subject=SUBJECT)
        attempt, guess = victims.attack(victim, spec, auxiliary, 7, course=False)
        assert attempt.to_original == pytest.approx(float(paired_psnr(victim.original, guess)[0]))
        guesses.append(guess)
    assert torch.allclose(*guesses, atol=1e-6)


def test_likeness_is_one_at_the_image_itself(place):
    model = training.trained(LEARNER, "none", place)
    victim = victims.make_victim(model, POLICY, 2, 7, subject=SUBJECT)
    at_goal = victims.similarity(victim, Snapshot(9, 0.0, 0.0, victim.transformed))
    assert at_goal.step == 9
    assert (at_goal.all, at_goal.shallow, at_goal.deep) == pytest.approx((1.0, 1.0, 1.0), abs=1e-5)


def test_training_gradients_are_what_the_defence_would_send():
    model = nn.Sequential(nn.Linear(20, 10), nn.BatchNorm1d(10), nn.Linear(10, 4))
    stack, layout = make_defences(PERTURBATIONS["pruning-70"]), Layout.of(model)
    for parameter in model.parameters():
        parameter.grad = torch.randn(parameter.shape, generator=torch.Generator().manual_seed(1))
    before = [parameter.grad.clone() for parameter in model.parameters()]
    PerturbedGradients(stack, layout).steer(list(model.parameters()), torch.Generator())
    for parameter, gradient in zip(model.parameters(), before):
        dropped = int(0.7 * gradient.numel())
        least = gradient.abs().flatten().sort().values
        expected = torch.where(gradient.abs() >= least[dropped], gradient, 0.0)
        assert torch.equal(parameter.grad, expected)


def test_watching_a_training_changes_nothing(place):
    images, recipe = training.materials_of(LEARNER), LEARNER.recipe
    network = training.first_network(LEARNER, 4)
    start = read_vector(network)
    unwatched = fit(network, start, images.train, recipe, 3)
    watching = Watching(images.test, recipe.total_steps(len(images.train)) // recipe.epochs)
    assert torch.equal(fit(network, start, images.train, recipe, 3, watching), unwatched)
    watching.end_epoch(network)
    assert len(watching.course) == recipe.epochs
    assert watching.course[-1].loss < watching.course[0].loss


def test_a_model_from_the_shared_folder_is_the_one_that_would_be_trained(place, tmp_path):
    first = training.trained(LEARNER, POLICY, place)
    again = training.trained(LEARNER, POLICY, place)
    elsewhere = Workplace(place.engine, place.seed, tmp_path / "other", tmp_path / "anew", place.progress)
    anew = training.trained(LEARNER, POLICY, elsewhere)
    assert torch.equal(read_vector(first.network), read_vector(again.network))
    assert torch.equal(read_vector(first.network), read_vector(anew.network))
    assert first.course == again.course == anew.course
    assert not torch.equal(
        read_vector(first.network), read_vector(training.trained(LEARNER, "none", place).network)
    )


def test_reduced_images_are_means_of_blocks():
    whole = training.materials("digits", 20, 10, None)
    reduced = training.materials("digits", 20, 10, 4)
    assert reduced.test.shape == (1, 4, 4)
    assert reduced.test.x[3, 0, 1, 2] == pytest.approx(float(whole.test.x[3, 0, 2:4, 4:6].mean()))


def test_the_overlap_counts_the_five_lowest_scores():
    indices = list(range(30))
    scores = np.full((30, 12), 0.5)
    scores[list(BEST_FIVE)] = 0.1
    rng = np.random.default_rng(0)
    certain = best_five_overlap(scores, indices, rng)
    assert (certain.value, certain.low, certain.high, certain.n) == (5, 5, 5, 12)
    scores[[20, 21]] = 0.05
    assert best_five_overlap(scores, indices, rng).value == 3
    scores[[20, 21], ::2] = 0.2  # their mean is 0.125; in one resample of five it lies below 0.1
    spread = best_five_overlap(scores, indices, rng)
    assert spread.value == 5
    assert spread.low < 5


def test_transformations_that_do_the_same_are_scored_once():
    indices = distinct_indices((3, 32, 32))
    done = [effects(Policy(((index,),)), (3, 32, 32)) for index in indices]
    assert len(set(done)) == len(done)
    assert set(BEST_FIVE) <= set(indices)
    assert {effects(Policy(((index,),)), (3, 32, 32)) for index in range(50)} == set(done)


@pytest.mark.slow
def test_the_smoke_scale_runs_to_its_end(tmp_path):
    run_study("ats", scale="smoke", out=tmp_path / "run", workers=1, quiet=True)
    run = read_run(tmp_path / "run")
    assert len({row.cell for row in run.rows}) == len(ATSStudy().cells("smoke"))
    assert not [row for row in run.rows if row.metric == "not-applicable"]
    assert len(run.study.verdicts) == len(CLAIMS) + 1
    charts = {chart.name.partition("-")[0] for chart in run.study.charts}
    assert charts == {"likeness", "convergence", "library", "figure"}


@pytest.mark.slow
@pytest.mark.real_data
def test_every_learner_of_the_laptop_scale_trains_and_is_attacked(place):
    grid = SCALES["laptop"]()
    learners = dict.fromkeys(group.learner for group in grid.groups)
    assert len(learners) == 3
    for learner in learners:
        small = replace(learner, images=200, epochs=1, test=100)
        task = Task(
            ArmCell("table-1", small.data, small.model, HYBRID),
            small,
            POLICY,
            trained_under=POLICY,
            specs=(
                grid.plain[1].replace("steps=300", "steps=2"),
                *(spec.replace("steps=300", "steps=10") for spec in grid.knowing),
            ),
            images=1,
        )
        findings = cells.attack_cell(task, replace(place, folder=place.folder / small.data / small.model))
        assert {finding.metric for finding in findings} >= {TRANSFORMED, ORIGINAL}
        assert all(finding.value is not None for finding in findings)
