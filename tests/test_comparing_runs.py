"""Runs beside each other: in what they differ, what is paired, what is pooled, and what is refused."""

import json
import shutil
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from report_runs import Balanced, a_row, a_run, text_of

import glasshouse
from glasshouse.cli import main
from glasshouse.errors import BadInput
from glasshouse.exhibits import Division, Exhibits, Holder, Records
from glasshouse.findings import from_row
from glasshouse.report import compare_reports, compare_runs
from glasshouse.results import write_results

CONFIG = """# by glasshouse 0.1.0
# by torch 2.6.0
# from data 00ff
# from first weights {weights}
seed = {seed}

[data]
name = "digits"

[training]
rounds = {rounds}

[audit]
defences = {defences}
"""


def an_audit(
    folder: Path,
    *rows: dict[str, Any],
    records: tuple[Records, ...] = (),
    division: tuple[Division, ...] = (),
    **settings: Any,
) -> Path:
    """A finished run with these findings and settings, and what it kept of single records."""
    known = {"seed": 0, "rounds": 3, "defences": "[]", "weights": f"w{settings.get('seed', 0)}"} | settings
    folder.mkdir()
    (folder / "config.toml").write_text(CONFIG.format(**known))
    findings = [from_row(row | {"seed": known["seed"]}) for row in rows or [a_row()]]
    write_results(folder, findings, Exhibits(records=records, division=division))
    return folder


def divided(**told: Any) -> Division:
    """Who holds what of some data."""
    labels = {"members": (9, 9), "nonmembers": (9, 9), "auxiliary": (0, 0), "test": (9, 9)}
    return Division(holders=(Holder(name="0", members=18),), labels=labels, **told)


def scored(scores: np.ndarray, member: np.ndarray, seed: int = 0, **labels: Any) -> Records:
    """What the attack of `a_row` said of records."""
    columns = {
        "record": np.arange(len(scores)),
        "client": np.where(member, 0, -1),
        "member": member,
        "score": scores,
        "decision": scores > 0,
    }
    row = a_row(seed=seed) | labels
    about = {key: row[key] for key in ("cell", "strategy", "defence", "attack", "adversary", "seed")}
    return Records(table="membership", columns=columns, **about)


def test_a_leak_by_a_hair_and_none_by_a_hair_are_no_difference(tmp_path: Path) -> None:
    safe = an_audit(tmp_path / "a", a_row(value=0.537, low=0.498, high=0.576))
    leaky = an_audit(tmp_path / "b", a_row(value=0.542, low=0.503, high=0.581), rounds=4)
    (one,) = compare_runs([safe, leaky]).differences
    assert one.value == pytest.approx(0.005)
    assert one.low < 0 < one.high
    text = text_of(compare_reports([safe, leaky], tmp_path / "both.html").read_text())
    assert "no difference shown AUC 0.537 and 0.542" in text
    assert "leaks" not in text


def test_a_difference_beyond_its_interval_is_shown(tmp_path: Path) -> None:
    first = an_audit(tmp_path / "a", a_row(value=0.6, low=0.56, high=0.64))
    second = an_audit(tmp_path / "b", a_row(value=0.9, low=0.87, high=0.93), rounds=300)
    page = compare_reports([first, second], tmp_path / "both.html").read_text()
    Balanced().check(page)
    assert "leaks more with b" in text_of(page)
    assert "leaks less with a" in text_of(
        compare_reports([second, first], tmp_path / "both.html").read_text()
    )
    assert 'class="bar leak"' in page


def test_of_many_differences_one_that_just_leaves_zero_may_be_luck(tmp_path: Path) -> None:
    near = {"value": 0.557, "low": 0.52, "high": 0.594}  # 0.057 with a half-width of about 0.054
    still = {"value": 0.5, "low": 0.46, "high": 0.54}
    attacks = [f"attack-{number}" for number in range(10)]
    first = an_audit(tmp_path / "a", *(a_row(attack=name, **still) for name in attacks))
    rows = [a_row(attack=name, **(near if name == "attack-0" else still)) for name in attacks]
    second = an_audit(tmp_path / "b", *rows, rounds=4)
    compared = compare_runs([first, second])
    assert [one.verdict(compared.among) for one in compared.differences][:2] == [
        "may be luck",
        "no difference shown",
    ]
    assert compared.differences[0].verdict() == "more"
    assert "Of 10 differences that can be judged, none is shown; 1 may be luck" in str(compared)


def test_every_difference_of_the_settings_is_named(tmp_path: Path) -> None:
    first = an_audit(tmp_path / "a", defences='["clipping(norm=1.0)", "pruning"]')
    second = an_audit(tmp_path / "b", defences='["clipping(norm=1.0)"]', rounds=30, seed=4)
    config = (second / "config.toml").read_text()
    (second / "config.toml").write_text(config.replace("torch 2.6.0", "torch 2.7.0").replace("00ff", "00fe"))
    environment = json.loads((second / "environment.json").read_text())
    (second / "environment.json").write_text(json.dumps(environment | {"numpy": "1.0.0"}))
    found = {one.name: one.values for one in compare_runs([first, second]).differing}
    assert found.pop("version of numpy")[1] == "1.0.0"
    assert found == {
        "training.rounds": ("3", "30"),
        "audit.defences": ("pruning", "none of these"),
        "seeds": ("0", "4"),
        "fingerprint of the data": ("00ff", "00fe"),
        "first weights": ("w0", "w4"),
    }


def test_the_code_is_named_where_it_differs(tmp_path: Path) -> None:
    folders = [an_audit(tmp_path / name) for name in "ab"]
    config = folders[1] / "config.toml"
    config.write_text("# by my_lab:Mine 1234abcd\n" + config.read_text())
    (one,) = compare_runs(folders).differing
    assert (one.name, one.values) == ("code of my_lab:Mine", ("not set", "1234abcd"))


def test_runs_that_differ_by_seed_alone_are_pooled(tmp_path: Path) -> None:
    folders = [
        an_audit(tmp_path / f"s{seed}", a_row(value=value, low=value - 0.1, high=value + 0.1), seed=seed)
        for seed, value in enumerate((0.5, 0.6))
    ]
    other = an_audit(tmp_path / "other", rounds=9)
    compared = compare_runs([*folders, other])
    pooled, _ = compared.compared
    assert (pooled.name, pooled.seeds) == ("s0 + s1", {0, 1})
    (one,) = compared.differences
    assert one.first.value == pytest.approx(0.55)
    assert one.first.n == 2 * 720

    text = text_of(compare_reports(folders, tmp_path / "pooled.html").read_text())
    assert "2 runs of one experiment" in text
    assert "differ by seed alone and are pooled, over seeds 0 and 1" in text
    assert "0.550" in text


@pytest.mark.parametrize(("told", "n", "half"), [
    ({"held_out": "images"}, 1440, 0.04 / 2**0.5),
    ({"held_out": "images", "redrawn": False}, 720, 0.04),
    ({"held_out": "given"}, 720, 0.04),
])  # fmt: skip
def test_seeds_are_pooled_by_whether_they_drew_the_records_anew(
    tmp_path: Path, told: dict[str, Any], n: int, half: float
) -> None:
    division = divided(**told)
    folders = [an_audit(tmp_path / f"s{seed}", seed=seed, division=(division,)) for seed in (0, 1)]
    (one,) = compare_runs([*folders, an_audit(tmp_path / "other", rounds=9)]).differences
    assert (one.first.n, one.first.high - one.first.value) == (n, pytest.approx(half))

    write_results(folders[0], [from_row(a_row(seed=seed)) for seed in (0, 1)], Exhibits(division=(division,)))
    results = glasshouse.read_results(folders[0])
    assert results.same_records == (n == 720)
    assert f"AUC 0.570 ({0.57 - half:.3f} to {0.57 + half:.3f})" in str(results)


def test_runs_of_whole_clients_are_pooled_though_each_seed_drew_as_many_as_it_did(tmp_path: Path) -> None:
    folders = [an_audit(tmp_path / f"s{seed}", seed=seed) for seed in (0, 1)]
    for clients, folder in zip((6, 7), folders):
        told = f'name = "digits"\nclients = {clients}\n'
        config = (folder / "config.toml").read_text().replace('name = "digits"\n', told)
        (folder / "config.toml").write_text(config)
    assert len(compare_runs(folders).compared) == 2
    for folder in folders:
        config = (folder / "config.toml").read_text()
        (folder / "config.toml").write_text(config.replace("clients", 'holdout = "whole-clients"\nclients'))
    assert len(compare_runs(folders).compared) == 1


def test_a_seed_that_two_runs_have_is_counted_once(tmp_path: Path) -> None:
    both = an_audit(tmp_path / "both", a_row())
    write_results(both, [from_row(a_row(seed=seed)) for seed in (0, 1)], Exhibits())
    one = an_audit(tmp_path / "one", a_row(), seed=1)
    compared = compare_runs([both, one])
    (pooled,) = compared.compared
    assert [row.seed for row in pooled.rows] == [0, 1]
    assert "seed 1 is in more than one of them and is counted once" in str(compared)


def test_runs_of_one_seed_or_of_other_code_are_not_pooled(tmp_path: Path) -> None:
    first, same, edited = (
        an_audit(tmp_path / name, seed=seed) for name, seed in (("a", 0), ("b", 0), ("c", 1))
    )
    config = edited / "config.toml"
    config.write_text("# by my_lab:Mine 1234abcd\n" + config.read_text())
    assert len(compare_runs([first, same]).compared) == 2
    assert len(compare_runs([first, edited]).compared) == 2


@pytest.fixture
def scores() -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(0)
    member = np.arange(400) < 200
    return rng.normal(size=400) + 0.5 * member, member


def test_the_same_records_are_paired_and_narrow_the_interval(tmp_path: Path, scores: Any) -> None:
    score, member = scores
    noisy = score + np.random.default_rng(1).normal(size=400) * 0.1
    rows = {"value": 0.64, "low": 0.59, "high": 0.69}
    first = an_audit(tmp_path / "a", a_row(**rows), records=(scored(score, member),))
    second = an_audit(tmp_path / "b", a_row(**rows), records=(scored(noisy, member),), rounds=4)
    (one,) = compare_runs([first, second]).differences
    assert one.unpaired == ""
    assert one.high - one.low < 0.04  # unpaired it would be 0.14
    for other in (scored(noisy, ~member), scored(noisy[:-1], member[:-1])):
        again = an_audit(tmp_path / f"c{len(other)}", a_row(**rows), records=(other,), rounds=5)
        (apart,) = compare_runs([first, again]).differences
        assert apart.unpaired == "the records differ"
        assert apart.high - apart.low == pytest.approx(np.hypot(0.1, 0.1))


def test_records_of_other_data_are_not_paired(tmp_path: Path, scores: Any) -> None:
    folders = [an_audit(tmp_path / name, records=(scored(*scores),)) for name in "ab"]
    config = folders[1] / "config.toml"
    config.write_text(config.read_text().replace("00ff", "00fe"))
    (one,) = compare_runs(folders).differences
    assert one.unpaired == "the data differ"


def test_where_runs_do_not_name_their_data_nobody_says_that_they_differ(tmp_path: Path, scores: Any) -> None:
    folders = [an_audit(tmp_path / name, records=(scored(*scores),)) for name in "ab"]
    for folder in folders:
        config = (folder / "config.toml").read_text().replace("# from data 00ff\n", "")
        (folder / "config.toml").write_text(config)
        compared = compare_runs(folders)
        assert [one.unpaired for one in compared.differences] == [
            "it is not known whether the data are the same"
        ]
    assert "unpaired as it is not known whether the data are the same" in str(compared)


def test_of_runs_with_other_seeds_those_that_both_have_are_paired(tmp_path: Path, scores: Any) -> None:
    first = an_audit(tmp_path / "a", records=(scored(*scores),))
    records = tuple(scored(*scores, seed=seed) for seed in (0, 1))
    second = an_audit(tmp_path / "b", rounds=4)
    write_results(second, [from_row(a_row(seed=seed)) for seed in (0, 1)], Exhibits(records=records))
    (one,) = compare_runs([first, second]).differences
    assert (one.value, one.unpaired, one.seeds_differ) == (0.0, "", True)
    assert one.second.values == (0.57,)


def test_runs_of_different_strategies_line_up(tmp_path: Path) -> None:
    folders = []
    for name, strategy in (("one", "fedavg"), ("two", "fedsgd")):
        rows = [a_row(strategy=strategy), a_row(family="utility", adversary=None, attack=None,
                metric="test-accuracy", value=0.9, low=0.8, high=0.95, strategy="central")]  # fmt: skip
        folders.append(a_run(tmp_path / name, rows, full=False))
    text = text_of(compare_reports(folders, tmp_path / "pair.html").read_text())
    assert "AUC 0.570 (0.530 to 0.610) 0.570 (0.530 to 0.610) 0.000" in text
    assert "test accuracy, central 0.900 (0.800 to 0.950) 0.900 (0.800 to 0.950) 0.000" in text
    assert "strategy fedavg fedsgd" in text


def test_studies_are_compared_cell_by_cell(tmp_path: Path) -> None:
    folders = []
    for name, value in (("a", 0.6), ("b", 0.8)):
        rows = [a_row(source="mia-bad", cell=cell, value=value, low=value - 0.01, high=value + 0.01)
                for cell in ("table-1/x", "table-1/y")]  # fmt: skip
        folders.append(a_run(tmp_path / name, rows, full=False))
    compared = compare_runs(folders)
    assert [one.row.cell for one in compared.differences] == ["table-1/x", "table-1/y"]
    assert "table-1/y" in compare_reports(folders, tmp_path / "both.html").read_text()


def test_the_terminal_has_a_short_summary_and_the_path(tmp_path, capsys, monkeypatch) -> None:
    folders = [str(a_run(tmp_path / name)) for name in "ab"]
    page = tmp_path / "both.html"
    monkeypatch.setattr(sys, "argv", ["glasshouse", "report", *folders, "--out", str(page)])
    with pytest.raises(SystemExit) as done:
        main()
    assert done.value.code == 0
    lines = capsys.readouterr().out.splitlines()
    assert len(lines) <= 12
    assert lines[0] == "a and b differ in nothing that their folders name."
    assert lines[-1] == str(page)
    assert page.exists()


def refusals(folder: Path) -> dict[str, tuple[list[Path], str]]:
    """Runs that cannot be compared, and what is said of them."""
    audit = an_audit(folder / "audit")
    study = a_run(folder / "study", [a_row(source="mia-bad")], full=False)
    unfinished = folder / "unfinished"
    unfinished.mkdir()
    (unfinished / "config.toml").write_text("seed = 0\n")
    damaged = Path(shutil.copytree(audit, folder / "damaged"))
    (damaged / "results.json").write_text((audit / "results.json").read_text().replace("0.57", "0.75"))
    return {
        "alone": ([audit], "give at least two"),
        "twice": ([audit, audit], "is named twice"),
        "study": ([audit, study], "audit is an audit and study is the study mia-bad"),
        "unfinished": ([audit, unfinished], "the run is not finished; repeat its command"),
        "damaged": ([audit, damaged], "not as the run wrote it"),
        "nowhere": ([audit, folder / "nowhere"], "no results.json there"),
    }


@pytest.mark.parametrize("case", ["alone", "twice", "study", "unfinished", "damaged", "nowhere"])
def test_what_cannot_be_compared_is_refused_in_a_line(tmp_path: Path, case: str) -> None:
    folders, words = refusals(tmp_path)[case]
    with pytest.raises(BadInput) as refused:
        compare_runs(folders)
    assert words in str(refused.value)
    assert str(refused.value).isprintable()


def test_a_refusal_has_exit_code_2(tmp_path, capsys, monkeypatch) -> None:
    folders, words = refusals(tmp_path)["study"]
    monkeypatch.setattr(sys, "argv", ["glasshouse", "report", *map(str, folders)])
    with pytest.raises(SystemExit) as done:
        main()
    assert done.value.code == 2
    (line,) = capsys.readouterr().err.splitlines()
    assert words in line


def test_a_comparison_does_not_take_the_place_of_a_runs_own_report(tmp_path: Path) -> None:
    folders = [an_audit(tmp_path / name) for name in "ab"]
    with pytest.raises(BadInput, match="a run's own report"):
        compare_reports(folders, folders[0])


def test_python_compares_results_and_folders(tmp_path: Path) -> None:
    folders = [an_audit(tmp_path / name) for name in "ab"]
    compared = glasshouse.compare(glasshouse.read_results(folders[0]), str(folders[1]))
    assert [one.value for one in compared.differences] == [0.0]
    assert compared.differing == []
