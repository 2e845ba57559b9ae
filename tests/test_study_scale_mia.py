import dataclasses
import itertools
import json
import shutil

import numpy as np
import pytest
import torch

from glasshouse.access import BlindServerAccess
from glasshouse.attacks.crafted.surrogate import Schooling
from glasshouse.auditing.examine import Examination
from glasshouse.auditing.gallery import contact_sheet
from glasshouse.evidence.reconstruction import Rebuilt, Reconstructions
from glasshouse.evidence.truth import Question
from glasshouse.learning.engine import Engine
from glasshouse.learning.layout import write_vector
from glasshouse.measures.estimate import proportion
from glasshouse.measures.pictures import match
from glasshouse.progress import Progress
from glasshouse.studies.run import run_study
from glasshouse.studies.scale_mia import printed, scenarios
from glasshouse.studies.scale_mia.autoencoders import (
    BINS,
    DECODABLE,
    DECODED,
    DISTANCE,
    LATENTS,
    LAWS,
    brightness,
    schooled,
)
from glasshouse.studies.scale_mia.cells import BOUND, CODED, DRAWN, PEELED, PUBLISHED, over_rounds, pooled
from glasshouse.studies.scale_mia.grid import ScaleMIAStudy
from glasshouse.studies.scale_mia.rivals import Rival
from glasshouse.studies.scale_mia.scales import SCALES
from glasshouse.studies.scale_mia.scenarios import RoundPlan, Scenario, Scenarios, cases
from glasshouse.studies.study import Workplace
from glasshouse.verdicts.metrics import NOT_RUN

FLAT = Scenario("mlp", "digits", Schooling(steps=1, batch_size=8, lr=1e-3))
DEEP = Scenario("cnn", "digits", Schooling(steps=3, batch_size=8, lr=1e-3))


@pytest.fixture(scope="module")
def engine():
    with Engine(1) as running:
        yield running


def workplace(engine, folder, seed=0):
    return Workplace(engine, seed, folder / "cell", folder / "shared", Progress(quiet=True))


@pytest.fixture(scope="module")
def flat(engine, tmp_path_factory):
    return Scenarios().prepared(FLAT, workplace(engine, tmp_path_factory.mktemp("flat")))


def examined(case, x):
    """A round in which an attack returned `x` for all clients but the first."""
    nobody = np.empty(0, dtype=np.int64)
    rng = torch.Generator()
    question = Question(case.truth, case.truth.pool[:0], nobody, nobody > 0, None, case.auxiliary, rng)
    evidence = Reconstructions((Rebuilt(x, tuple(range(1, 9))),), 0.0, 0.0)
    examination = Examination(case, CODED, BlindServerAccess, "reconstruction", evidence=evidence)
    return dataclasses.replace(examination, question=question, judgement=evidence.judge(question))


def test_the_originals_score_full_marks_and_nothing_scores_none(flat, engine, tmp_path):
    case, other = cases(flat, RoundPlan(16, 32, 2), workplace(engine, tmp_path))
    originals, strangers = (round.truth.held_by(range(1, 9)).x for round in (case, other))
    found = {}
    for name, x in (("whole", originals), ("none", originals[:0]), ("strangers", strangers)):
        rows = over_rounds([examined(case, x)], [match(originals, x)], {"psnr": 30.0})
        found |= {(name, row.metric): row for row in rows}
    assert found["whole", "recovery-rate"].value == 1.0
    assert found["whole", "psnr-of-returned"].n == 16
    assert 0 < found["whole", "recovery-rate"].chance < 1
    assert found["whole", "psnr"].printed == 30.0
    assert found["none", "recovery-rate"].value == 0.0
    assert found["none", "psnr-of-returned"].value is None
    assert "no image was returned" in found["none", "psnr-of-returned"].reason
    assert found["strangers", "near-exact-rate"].value < 1


def test_few_rounds_have_the_samples_interval_and_many_that_of_the_rounds():
    few = pooled([proportion(9, 10)], (0.0, 1.0))
    exact = proportion(9, 10)
    assert (few.low, few.high, few.n) == (pytest.approx(exact.low), pytest.approx(exact.high), 10)
    assert "independent" in few.note
    many = pooled([proportion(k, 10) for k in (7, 8, 9, 8)], (0.0, 1.0))
    # t(3) = 3.182 standard errors of 0.8, whose observations deviate by 0.0816
    assert many.value == pytest.approx(0.8)
    assert many.high - many.low == pytest.approx(
        2 * 3.1824 * np.std([0.7, 0.8, 0.9, 0.8], ddof=1) / 2, rel=1e-4
    )
    assert (many.n, "4 rounds" in many.note) == (40, True)
    same = pooled([proportion(10, 10)] * 4, (0.0, 1.0))
    assert same.low > 0.6
    assert same.high == 1.0


def test_a_contact_sheet_keeps_every_image_in_its_place():
    images = torch.rand(10, 1, 4, 4)
    sheet = contact_sheet(images, columns=8)
    assert sheet.shape == (1, 2 * 8 + 2, 8 * 8 + 7 * 2)
    assert torch.equal(sheet[:, 10:18:2, 10:18:2], images[9])
    assert (sheet[:, 8:10] == 1).all()


def test_brightness_shares_add_up_and_a_normal_fits_a_normal_best(flat):
    drawn = torch.randn(4000, 16, generator=torch.Generator().manual_seed(0))
    surrogate = dataclasses.replace(flat.surrogate, latents=drawn)
    result = brightness(dataclasses.replace(flat, surrogate=surrogate))
    shares = {shown.attack: dict(zip(shown.bins, shown.shares)) for shown in result.exhibits.histograms}
    assert set(shares) == {LATENTS, *LAWS}
    for by_bin in shares.values():
        assert tuple(by_bin) == BINS
        assert sum(by_bin.values()) == pytest.approx(1.0)
    distances = {finding.attack: finding.value for finding in result.findings}
    assert {finding.metric for finding in result.findings} == {DISTANCE}
    assert distances["normal"] < 0.03 < distances["laplace"]
    assert shares[LATENTS]["+0.0 to +0.5"] == pytest.approx(0.1915, abs=0.025)


def test_all_networks_data_sets_and_batches_of_table_4_are_cells():
    printed_cells = {
        f"table-4/{network}/{data}/{batch}"
        for (network, data), (row_of_rates, _) in printed.TABLE_4.items()
        for batch in printed.BATCHES[: len(row_of_rates)]
    }
    paper, laptop = (
        {cell.name for cell in ScaleMIAStudy().cells(scale) if cell.name.startswith("table-4")}
        for scale in ("paper", "laptop")
    )
    assert paper == printed_cells
    named = {name: name.split("/")[1:3] for name in printed_cells}
    assert laptop == {
        name
        for name, (network, data) in named.items()
        if network == "cnn" or data == "cifar10" or (network in ("alexnet", "vgg") and data != "hmnist")
    }


def test_table_3_and_the_heads_are_whole_at_laptop_scale():
    names = {cell.name for cell in ScaleMIAStudy().cells("laptop")}
    for attack in ("scale-mia", "robbing-the-fed"):
        batches = set(itertools.product(("resnet", "cnn"), printed.SMALL_BATCHES))
        assert {f"table-3/{network}/{attack}/{batch}" for network, batch in batches} <= names
    heads = set(itertools.product((16, 22, 30), printed.BATCHES))
    assert {f"heads/{bits}/{batch}" for bits, batch in heads} <= names


@pytest.mark.parametrize("scale", SCALES)
def test_every_autoencoder_that_an_attack_is_granted_is_a_cell_and_no_cell_is_there_twice(scale):
    names = [cell.name for cell in ScaleMIAStudy().cells(scale)]
    assert len(names) == len(set(names))
    grid = SCALES[scale]
    attacked = {row.scenario for row in grid.rows} | set(grid.starved)
    attacked |= {rival.scenario for rival in grid.rivals if rival.closed}
    expected = {f"autoencoder/{one.network}/{one.data}/{one.granted}" for one in attacked}
    assert {name for name in names if name.startswith("autoencoder")} == expected


@pytest.mark.parametrize("scale", ["laptop", "paper"])
def test_fishing_and_robbing_the_fed_have_eight_victims_or_more(scale):
    rivals = [rival for rival in SCALES[scale].rivals if rival.attack in ("fishing", "robbing-the-fed")]
    assert len(rivals) == 4
    assert min(rival.rounds for rival in rivals) >= 8


@pytest.mark.parametrize("scale", ["laptop", "paper"])
def test_the_rows_of_the_cnn_have_sixteen_rounds_at_every_batch_size(scale):
    rows = [row for row in SCALES[scale].rows if row.scenario.network == "cnn"]
    assert rows
    assert min(row.seen(batch) // batch for row in rows for batch in row.batches) >= 16


def test_the_laptop_trains_every_autoencoder_of_the_cnn_for_twelve_thousand_steps():
    steps = {one.schooling.steps for one in SCALES["laptop"].scenarios if one.network == "cnn"}
    assert steps == {12_000}


def test_an_autoencoder_is_measured_on_images_that_it_was_not_trained_on(engine, tmp_path, monkeypatch):
    place = workplace(engine, tmp_path)
    prepared = Scenarios().prepared(DEEP, place)
    monkeypatch.setattr(scenarios, "make_surrogate", lambda *_, **__: pytest.fail("trained again"))
    found = {row.metric: row for row in schooled(DEEP, place).findings}
    encode = prepared.network.train()
    write_vector(encode, prepared.surrogate.vector)
    with torch.no_grad():
        latents = torch.cat([encode.encoder(batch) for batch in prepared.held.x.split(64)])
    errors = (prepared.surrogate.decode(latents) - prepared.held.x).double().square().mean((1, 2, 3))
    psnr = -10 * errors.log10()
    assert found[DECODED].value == pytest.approx(float(psnr.mean()), abs=1e-3)
    assert found[DECODABLE].value == pytest.approx(float((psnr >= 18).double().mean()))
    assert found[DECODED].n == len(prepared.held)
    assert "3 steps of 8" in found[DECODED].note


def test_the_published_attack_says_why_it_cannot_run_on_two_linear_layers_and_ours_stands_beside_it(
    engine, tmp_path
):
    two = Rival((PUBLISHED, CODED), dataclasses.replace(FLAT, network="resnet"), 1, (16,), closed=True)
    (cell,) = two.cells()
    rows = {(row.attack, row.metric): row for row in cell.run(workplace(engine, tmp_path)).findings}
    assert cell.name == "table-3/resnet/scale-mia/16"
    assert rows[PUBLISHED, NOT_RUN].value is None
    assert "pass no gradient" in rows[PUBLISHED, NOT_RUN].reason
    assert rows[CODED, "recovery-rate"].n == 16
    assert (PUBLISHED, "recovery-rate") not in rows


def test_searches_need_no_autoencoder(engine, tmp_path, monkeypatch):
    monkeypatch.setattr(scenarios, "make_surrogate", lambda *_, **__: pytest.fail("trained"))
    rival = Rival(("inverting-gradients(steps=2)",), DEEP, 1, (2,), passive=True)
    (cell,) = rival.cells()
    assert (cell.name, cell.single) == ("table-3/cnn/inverting-gradients/2", True)
    rows = {row.metric: row for row in cell.run(workplace(engine, tmp_path)).findings}
    assert rows["psnr-of-returned"].n == 2
    assert rows["psnr"].adversary == "curious server"
    assert rows["mean-image-psnr"].value < rows["psnr"].chance


PART = "table-4/mlp/digits/16"


@pytest.fixture(scope="module")
def smoke(tmp_path_factory):
    folder = tmp_path_factory.mktemp("scale-mia") / "run"
    run_study("scale-mia", scale="smoke", cells=PART, out=folder, workers=1, quiet=True)
    return folder


def rows_of(folder):
    """All findings without those that are seconds, and without the time they took."""
    rows = json.loads((folder / "results.json").read_text())
    return [found | {"seconds": None} for found in rows if not found["metric"].endswith("seconds")]


def test_smoke_recovers_more_than_the_oracle_and_peeling_more_than_that(smoke):
    found = {(own["attack"], own["metric"]): own for own in rows_of(smoke)}
    published, peeled = found[PUBLISHED, "recovery-rate"], found[PEELED, "recovery-rate"]
    assert published["chance"] < published["low"]
    assert published["value"] < peeled["value"]
    assert published["n"] == peeled["n"] == found[CODED, "recovery-rate"]["n"] == 64
    assert any("autoencoder" in words for words in published["assumes"])
    assert found[None, BOUND]["value"] == pytest.approx((1 - 1 / 200) ** 15)


def test_a_study_cut_short_ends_with_the_same_numbers_from_the_kept_autoencoder(smoke, tmp_path, monkeypatch):
    folder = tmp_path / "run"
    shutil.copytree(smoke, folder)
    (folder / "work" / PART / "seed-0000.json").unlink()
    monkeypatch.setattr(scenarios, "make_surrogate", lambda *_, **__: pytest.fail("trained again"))
    run_study("scale-mia", scale="smoke", cells=PART, out=folder, workers=1, quiet=True)
    assert rows_of(folder) == rows_of(smoke)


def test_all_heads_meet_exact_and_rounded_sums_at_smoke_scale(tmp_path):
    for part in ("heads/*", "table-4/mlp/*"):
        run_study("scale-mia", scale="smoke", cells=part, out=tmp_path, workers=1, quiet=True)
    rows = rows_of(tmp_path)
    assert not [found for found in rows if found["metric"] == NOT_RUN]
    rate = {
        (found["cell"], found["attack"]): found["value"]
        for found in rows
        if found["metric"] == "recovery-rate" and found["attack"] != PEELED
    }
    places = [f"{place}/{batch}" for place in ("heads/22", "table-4/mlp/digits") for batch in (16, 64)]
    assert set(rate) == set(itertools.product(places, [PUBLISHED, DRAWN, CODED]))
    assert rate["table-4/mlp/digits/16", PUBLISHED] > 0.7
    assert rate["heads/22/64", CODED] > rate["heads/22/64", PUBLISHED]
    flagged = {found["attack"]: found["value"] for found in rows if found["metric"] == "vet-alarm"}
    assert flagged == dict.fromkeys((PUBLISHED, DRAWN, CODED, PEELED), 1.0)


def test_rivals_privacy_and_several_steps_run_at_smoke_scale_and_say_what_they_met(tmp_path):
    for cells in ("table-3/mlp/*", "table-3/resnet/*", "dp/*", "local-steps/2"):
        run_study("scale-mia", scale="smoke", cells=cells, out=tmp_path, workers=1, quiet=True)
    rows = rows_of(tmp_path)
    assert not [found for found in rows if found["metric"] == NOT_RUN]
    searched = {found["attack"].partition("(")[0] for found in rows if found["adversary"] == "curious server"}
    assert searched == {"dlg", "idlg", "inverting-gradients", "gradinversion"}
    robbed = [found for found in rows if (found["attack"], found["metric"]) == ("robbing-the-fed", "psnr")]
    assert all("permission to change the network" in found["assumes"] for found in robbed)
    of_rate = [found for found in rows if found["metric"] == "recovery-rate"]
    rate = {(found["cell"], found["attack"]): found["value"] for found in of_rate}
    quiet = "scale-mia-peeled(rounds=1,norm=1.0)"
    assert rate["dp/0", quiet] > 0.9 > rate["dp/0", CODED]
    assert max(rate["dp/1", quiet], rate["dp/1", PUBLISHED]) < 0.1
    flagged = {found["attack"]: found["value"] for found in rows if found["metric"] == "vet-alarm"}
    assert flagged[PUBLISHED] == flagged[CODED] == flagged["robbing-the-fed"] == 1.0
