"""The search for a policy: what it draws, what it scores once, how it goes on, and what it leaves."""

import tomllib
from pathlib import Path

import numpy as np
import pytest
import torch
from typer.testing import CliRunner

from glasshouse import BadInput, search_policy
from glasshouse.cli import app
from glasshouse.data.images import Images
from glasshouse.data.sources import load
from glasshouse.defences.policies import search as searching
from glasshouse.defences.policies.accuracy_score import accuracy_score
from glasshouse.defences.policies.candidates import distinct, draw_policies, effects
from glasshouse.defences.policies.defence import TransformationPolicy
from glasshouse.defences.policies.files import read_policy
from glasshouse.defences.policies.policy import Policy, parse_policy
from glasshouse.defences.policies.privacy_score import image_scores
from glasshouse.defences.policies.run import Found
from glasshouse.defences.policies.transformations import LIBRARY
from glasshouse.learning.seeds import derive

COLOUR = (3, 32, 32)
GREY = (1, 28, 28)


def written(*texts: str) -> list[Policy]:
    return [parse_policy(text) for text in texts]


def tiny_search(out: Path, **options: object) -> Found:
    return search_policy(
        "digits",
        "mlp",
        **{"candidates": 8, "keep": 2, "images": 9, "workers": 1, "quiet": True, "out": out, **options},
    )


def test_twenty_nine_of_the_fifty_transformations_differ_and_two_of_them_do_nothing() -> None:
    singles = [Policy(((index,),)) for index in range(len(LIBRARY))]
    nothing = [index for index in range(50) if effects(singles[index], COLOUR) == ((),)]
    assert nothing == [28, 39]
    assert len(distinct(singles, COLOUR)) == 28  # one of them for both of these


def test_policies_of_the_same_effect_are_drawn_once() -> None:
    same = written("42-1-2", "43-1-2", "48-1-2", "24-1-2")
    assert distinct(same, COLOUR) == same[:1]
    assert distinct(written("28-3-1", "3-39-1", "3-1-28", "1-3-28"), COLOUR) == written("28-3-1", "1-3-28")


def test_what_does_nothing_depends_on_the_images() -> None:
    coloured = written("12-3-1", "20-3-1", "3-1-28")
    assert distinct(coloured, COLOUR) == coloured
    assert distinct(coloured, GREY) == coloured[:1]
    equalized = written("9-3-1", "3-1-28")
    assert distinct(equalized, GREY) == equalized
    assert distinct(equalized, (1, 8, 8)) == equalized[:1]


@pytest.mark.parametrize("shape", [COLOUR, GREY, (1, 8, 8)])
def test_transformations_of_the_same_effect_give_the_same_images(shape: tuple[int, int, int]) -> None:
    x = torch.rand(4, *shape, generator=torch.Generator().manual_seed(0))
    images: dict[object, torch.Tensor] = {((),): (255 * x).round() / 255}
    for index in range(len(LIBRARY)):
        policy = Policy(((index,),))
        transformed = policy.apply(x, torch.Generator().manual_seed(1))
        expected = images.setdefault(effects(policy, shape), transformed)
        assert torch.allclose(transformed, expected), index


def test_the_same_seed_draws_the_same_policies() -> None:
    first, second, other = (
        draw_policies(40, COLOUR, torch.Generator().manual_seed(seed)) for seed in (0, 0, 1)
    )
    assert first == second != other
    assert all(len(policy.choices[0]) == 3 for policy in first)


def test_a_search_ranks_by_the_privacy_score_and_names_the_best_two(tmp_path: Path) -> None:
    found = tiny_search(tmp_path / "run")
    outcome = found.outcome
    values = [one.privacy.value for one in outcome.ranked]
    assert values == sorted(values)
    assert len(values) == 2
    assert outcome.hybrid.policy == "+".join(one.policy for one in outcome.ranked)
    assert all(one.privacy.n == 9 for one in (*outcome.ranked, outcome.hybrid, outcome.untransformed))
    assert outcome.passed <= outcome.distinct <= 8


def test_the_winner_is_the_best_of_all_where_all_are_scored_on_all_images(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With one stage only, nothing is lost to halving: an independent ranking agrees."""
    monkeypatch.setattr(searching, "RUNGS", (1,))
    materials = []
    monkeypatch.setattr(
        searching,
        "prepare",
        lambda *given, prepare=searching.prepare: materials.append(prepare(*given)) or materials[-1],
    )
    outcome = tiny_search(tmp_path / "run", candidates=16, keep=3).outcome
    material = materials[0]
    policies = draw_policies(16, (1, 8, 8), searching.torch_rng(0, "candidates"))
    expected = {
        str(policy): float(
            image_scores(
                material.semi_trained, material.images, policy.apply, seed=derive(0, "privacy")
            ).mean()
        )
        for policy in policies
    }
    tells = {
        str(policy): accuracy_score(
            material.untrained, material.batches, policy.apply, seed=derive(0, "accuracy")
        )
        for policy in [*policies, parse_policy("28")]
    }
    lowest = min(-85 / 63 * 10, tells["28"].value)
    is_kept = {policy: score.value >= lowest for policy, score in tells.items()}
    chosen = [policy for policy in expected if is_kept[policy]]
    assert len(chosen) == outcome.passed < outcome.distinct
    by_hand = sorted(chosen, key=expected.__getitem__)
    assert [one.policy for one in outcome.ranked] == by_hand[:3]
    for one in outcome.ranked:
        assert one.privacy.value == pytest.approx(expected[one.policy], abs=1e-5)


def test_each_policy_is_scored_once_and_a_stopped_search_goes_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    whole = tiny_search(tmp_path / "whole")
    scored: list[tuple[str, int]] = []
    score = searching._privacy

    def counted(job: searching._Job) -> tuple[float, ...]:
        if len(scored) == 5:
            raise KeyboardInterrupt
        scored.append((job.policy, job.start))
        return score(job)

    monkeypatch.setattr(searching, "_privacy", counted)
    with pytest.raises(KeyboardInterrupt):
        tiny_search(tmp_path / "stopped")
    monkeypatch.setattr(
        searching, "_privacy", lambda job: scored.append((job.policy, job.start)) or score(job)
    )
    resumed = tiny_search(tmp_path / "stopped")
    assert len(scored) == len(set(scored)) > 5
    assert resumed.outcome == whole.outcome
    assert resumed.file.read_text() == whole.file.read_text()


def test_workers_do_not_change_the_numbers(tmp_path: Path) -> None:
    alone, together = (tiny_search(tmp_path / str(n), workers=n, candidates=4).outcome for n in (1, 2))
    assert alone == together


def test_policies_that_do_the_same_to_all_images_are_ranked_once(tmp_path: Path) -> None:
    """Digits reach from black to white, so that autocontrast leaves most of them as they are."""
    found = tiny_search(tmp_path / "run", candidates=60, keep=8)
    scores = [one.privacy for one in found.outcome.ranked]
    assert len({(score.value, score.low) for score in scores}) == len(scores)
    assert found.outcome.untransformed.privacy not in scores


def test_the_policy_file_is_one_that_the_defence_reads(tmp_path: Path) -> None:
    found = tiny_search(tmp_path / "run")
    read = read_policy(found.file)
    assert str(read.policy) == found.outcome.hybrid.policy
    assert (read.shape, read.data, read.model) == ((1, 8, 8), "digits", "mlp")
    assert read.scores["privacy"] == pytest.approx(found.outcome.hybrid.privacy.value, abs=1e-5)
    entries = tomllib.loads(found.file.read_text())
    assert [one["policy"] for one in entries["ranked"]] == [one.policy for one in found.outcome.ranked]
    assert (entries["classes"], entries["search"]["candidates"], entries["ranked"][0]["images"]) == (10, 8, 9)
    assert TransformationPolicy(policy=str(found.file)).policy_for((1, 8, 8)) == read.policy


def test_another_network_or_other_labels_do_not_share_a_folder(tmp_path: Path) -> None:
    digits = load("digits").train[:300]
    options = {"candidates": 4, "keep": 2, "images": 8, "workers": 1, "quiet": True, "out": tmp_path / "run"}
    torch.manual_seed(0)
    network = torch.nn.Sequential(torch.nn.Flatten(), torch.nn.Linear(64, 10))
    search_policy(digits, network, **options)
    with pytest.raises(BadInput, match="other data"):
        search_policy(Images(digits.x, digits.y.flip(0), 10), network, **options)
    with pytest.raises(BadInput, match="other first weights"):
        search_policy(digits, torch.nn.Sequential(torch.nn.Flatten(), torch.nn.Linear(64, 10)), **options)


def test_own_images_and_networks_can_be_searched_for(tmp_path: Path) -> None:
    digits = load("digits").train
    own = Images(digits.x[:300], digits.y[:300], 10)
    network = torch.nn.Sequential(torch.nn.Flatten(), torch.nn.Linear(64, 10))
    found = search_policy(
        own, network, candidates=4, keep=2, images=8, workers=1, quiet=True, out=tmp_path / "run"
    )
    assert found.outcome.ranked
    assert np.isfinite(found.outcome.hybrid.privacy.value)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"candidates": 1}, "candidates = 1"),
        ({"keep": 1}, "keep = 1"),
        ({"keep": 9}, "keep = 9 is more than the 8 candidates"),
        ({"images": 1}, "images = 1"),
        ({"images": 10_000}, "digits has 1617 left"),
        ({"precision": "half"}, "half"),
    ],
)
def test_numbers_out_of_range_are_refused(tmp_path: Path, options: dict[str, object], message: str) -> None:
    with pytest.raises(BadInput, match=message):
        tiny_search(tmp_path / "run", **options)


@pytest.mark.parametrize(
    "arguments",
    [["--data", "no-such-set"], ["--model", "no-such-model"], ["--candidates", "0"], ["--precision", "int8"]],
)
def test_bad_input_is_one_line_and_exit_code_2(
    arguments: list[str], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    from glasshouse.cli import main

    monkeypatch.setattr(
        "sys.argv", ["glasshouse", "search-policy", *arguments, "--out", str(tmp_path / "run")]
    )
    with pytest.raises(SystemExit) as left:
        main()
    assert left.value.code == 2
    error = capsys.readouterr().err.strip()
    assert error.startswith("glasshouse: ")
    assert "\n" not in error


def test_the_command_shows_the_ranking_and_where_the_file_is(tmp_path: Path) -> None:
    small = ["--model", "mlp", "--candidates", "6", "--keep", "2", "--images", "8", "--workers", "1"]
    shown = CliRunner().invoke(app, ["search-policy", *small, "--out", str(tmp_path / "run")])
    assert shown.exit_code == 0, shown.output
    assert "untransformed" in shown.stdout
    quiet = CliRunner().invoke(app, ["search-policy", *small, "-q", "--out", str(tmp_path / "run")])
    assert quiet.stdout.split() == [str(tmp_path / "run" / "policy.toml")]
