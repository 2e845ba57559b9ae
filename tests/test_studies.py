import json

import pytest

from glasshouse.api import study
from glasshouse.errors import BadInput
from glasshouse.exhibits import Exhibits, Histogram, TrainingPoint
from glasshouse.findings import Finding
from glasshouse.registry import Registry
from glasshouse.report.run import read_run
from glasshouse.studies import STUDIES, clients
from glasshouse.studies import run as running
from glasshouse.studies.clients import ClientsStudy
from glasshouse.studies.run import run_study
from glasshouse.studies.study import Cell, CellResult, Presentation, Study


class Counting(Study):
    """A study that counts how often each cell runs."""

    name = "counting"
    title = "Counting"
    calls: list[tuple[str, int]] = []  # noqa: RUF012
    few: int | None = None

    def cells(self, scale):
        return [
            Cell(f"table-{n}/x", lambda place, n=n: self._cell(n, place), seeds=few)
            for n, few in ((1, None), (2, self.few))
        ]

    def _cell(self, number, place):
        if place.seed == 13:
            raise KeyboardInterrupt
        self.calls.append((f"table-{number}/x", place.seed))
        value = number + place.seed / 10
        findings = [Finding(source="", cell="", family="utility", metric="m", value=value, n=1, printed=1.0)]
        counted = Histogram(quantity="m", bins=("low", "high"), shares=(0.25, 0.75))
        curve = TrainingPoint(round=1, acc_global=value)
        return CellResult(findings, Exhibits(histograms=(counted,), training=(curve,)))

    def present(self, findings, exhibits):
        type(self).shown = exhibits
        return Presentation()


@pytest.fixture
def counting(monkeypatch):
    Counting.calls = []
    monkeypatch.setattr(running, "STUDIES", Registry("study", {"counting": "test_studies:Counting"}))
    return lambda **arguments: run_study("counting", workers=1, quiet=True, **arguments)


def test_finished_cells_are_not_run_again_and_more_seeds_add_up(counting, tmp_path):
    counting(out=tmp_path / "run", seeds=1)
    counting(out=tmp_path / "run", seeds=1)
    assert Counting.calls == [("table-1/x", 0), ("table-2/x", 0)]
    results = counting(out=tmp_path / "run", seeds=2)
    assert Counting.calls[2:] == [("table-1/x", 1), ("table-2/x", 1)]
    assert [(row.cell, row.seed, row.value) for row in results.findings] == [
        ("table-1/x", 0, 1.0), ("table-1/x", 1, 1.1), ("table-2/x", 0, 2.0), ("table-2/x", 1, 2.1),
    ]  # fmt: skip
    assert {row.source for row in results.findings} == {"counting"}


def test_exhibits_are_kept_with_their_cell_and_seed_and_shown_with_the_findings(counting, tmp_path):
    counting(out=tmp_path / "run", seeds=2)
    labels = [("table-1/x", 0), ("table-1/x", 1), ("table-2/x", 0), ("table-2/x", 1)]
    assert [(shown.cell, shown.seed) for shown in Counting.shown.histograms] == labels
    assert [(shown.cell, shown.seed) for shown in Counting.shown.training] == labels
    assert [shown.acc_global for shown in Counting.shown.training] == [1.0, 1.1, 2.0, 2.1]
    assert read_run(tmp_path / "run").curves == Counting.shown


def test_a_part_of_the_cells_can_run_first(counting, tmp_path):
    part = counting(out=tmp_path / "run", seeds=1, cells="table-2/*")
    assert Counting.calls == [("table-2/x", 0)]
    assert [row.cell for row in part.findings] == ["table-2/x"]
    whole = counting(out=tmp_path / "run", seeds=1)
    assert [row.cell for row in whole.findings] == ["table-1/x", "table-2/x"]


def test_an_interrupted_study_keeps_what_was_done(counting, tmp_path):
    with pytest.raises(KeyboardInterrupt):
        counting(out=tmp_path / "run", seeds=2, seed=12)
    assert Counting.calls == [("table-1/x", 12), ("table-2/x", 12)]
    for cell in ("table-1/x", "table-2/x"):
        assert json.loads((tmp_path / "run/work" / cell / "seed-0012.json").read_text())
        assert not (tmp_path / "run/work" / cell / "seed-0013.json").exists()


def test_scales_do_not_mix_in_one_folder(counting, tmp_path):
    counting(out=tmp_path / "run", seeds=1)
    with pytest.raises(BadInput, match="another configuration"):
        counting(out=tmp_path / "run", seeds=1, scale="laptop")


def test_a_damaged_cell_is_run_again_and_others_are_not(counting, tmp_path):
    before = counting(out=tmp_path / "run", seeds=1).findings
    file = tmp_path / "run/work/table-2/x/seed-0000.json"
    file.write_text(file.read_text().replace("2.0", "2.5", 1))
    with pytest.warns(UserWarning, match="is damaged"):
        assert counting(out=tmp_path / "run", seeds=1).findings == before
    assert Counting.calls == [("table-1/x", 0), ("table-2/x", 0), ("table-2/x", 0)]


def test_another_version_runs_every_cell_anew(counting, tmp_path, monkeypatch):
    counting(out=tmp_path / "run", seeds=2)
    monkeypatch.setattr(running, "versions", lambda: {"glasshouse": "9.9.9"})
    results = counting(out=tmp_path / "run", seeds=1)
    assert Counting.calls[4:] == [("table-1/x", 0), ("table-2/x", 0)]
    assert {row.seed for row in results.findings} == {0}


def test_a_cell_with_seeds_of_its_own_runs_with_these_unless_the_user_says_how_many(
    counting, tmp_path, monkeypatch
):
    monkeypatch.setattr(Counting, "few", 1)
    counting(out=tmp_path / "run", scale="laptop")
    assert [seed for cell, seed in Counting.calls if cell == "table-1/x"] == [0, 1, 2]
    assert [seed for cell, seed in Counting.calls if cell == "table-2/x"] == [0]
    counting(out=tmp_path / "run", scale="laptop", seeds=2)
    assert Counting.calls[4:] == [("table-2/x", 1)]


def test_every_study_has_cells_at_every_scale():
    for name in STUDIES:
        made = STUDIES.load(name)()
        assert made.name == name
        for scale in ("smoke", "laptop", "paper"):
            names = [cell.name for cell in made.cells(scale)]
            assert len(set(names)) == len(names) > 0
            assert made.seeds(scale) >= 1


def divided(few, many, reach, metric="test-accuracy", **more):
    """A number at each seed, for the fewest and the most clients, with an interval that goes so far."""
    made = {"source": "clients", "family": "made up", "metric": metric, "data": "digits", "model": "mlp"}
    return [
        Finding(
            **made, cell=cell, value=value, low=value - reach, high=value + reach, n=100, seed=seed, **more
        )
        for cell, values in ((f"clients-{clients.FEWEST}", few), (f"clients-{clients.MOST}", many))
        for seed, value in enumerate(values)
    ]


@pytest.mark.parametrize(("few", "many", "reach", "verdict"), [
    ([0.90, 0.91, 0.92], [0.80, 0.82, 0.81], 0.02, "holds"),
    ([0.80, 0.82, 0.81], [0.90, 0.91, 0.92], 0.02, "refuted"),
    ([0.900], [0.899], 0.001, "refuted"),
    ([0.90, 0.80, 0.85], [0.80, 0.90, 0.85], 0.02, "not shown"),
    ([0.90], [0.80], 0.1, "not shown"),
    ([0.90], [0.80], 0.02, "holds"),
    ([0.90], [], 0.02, "open"),
])  # fmt: skip
def test_clients_cost_accuracy_if_the_interval_of_the_fall_says_so(few, many, reach, verdict):
    assert ClientsStudy().conclude(divided(few, many, reach, chance=0.1))[0].verdict == verdict


def test_what_nothing_was_learned_or_leaked_of_decides_nothing():
    lost = ClientsStudy().conclude(divided([0.9], [0.1], 0.01, chance=0.1))[0]
    assert (lost.verdict, lost.reason) == ("open", "a model learned nothing")
    leaking = {"metric": "auc", "attack": "loss-threshold", "chance": 0.5}
    assert ClientsStudy().conclude(divided([0.7], [0.52], 0.01, **leaking))[1].verdict == "holds"
    silent = ClientsStudy().conclude(divided([0.51], [0.45], 0.02, **leaking))[1]
    assert (silent.verdict, "nothing that more could hide" in silent.reason) == ("open", True)


def test_the_clients_study_runs_at_smoke_scale(tmp_path):
    results = study("clients", cells="clients-1", out=tmp_path / "run", workers=1, quiet=True)
    assert {row.cell for row in results.findings} == {"clients-1"}
    assert {row.metric for row in results.findings} >= {"test-accuracy", "auc"}
    assert results.report.exists()
