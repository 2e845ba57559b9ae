"""What is varied at each scale: networks, data, batches, and how long autoencoders are trained."""

import dataclasses
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import product
from typing import Any

from glasshouse.attacks.crafted.surrogate import Schooling
from glasshouse.exhibits import Exhibits
from glasshouse.findings import Finding
from glasshouse.learning.recipe import Recipe
from glasshouse.studies.address import Address
from glasshouse.studies.measured import Measured
from glasshouse.studies.scale_mia import cells, printed, rivals
from glasshouse.studies.scale_mia.cells import (
    CODED,
    HEADS,
    IDEAL,
    PEELED,
    PICTURED,
    PUBLISHED,
    HeadsCell,
    Table4Cell,
    VariedCell,
)
from glasshouse.studies.scale_mia.claims import verdicts
from glasshouse.studies.scale_mia.figures import charts, pictures
from glasshouse.studies.scale_mia.layout import tables
from glasshouse.studies.scale_mia.printed import BATCHES, STARVED_BATCHES
from glasshouse.studies.scale_mia.rivals import Rival
from glasshouse.studies.scale_mia.scenarios import RoundPlan, Scenario, Scenarios
from glasshouse.studies.study import Cell, CellResult, Presentation, Study, Workplace
from glasshouse.verdicts.claims import Verdict

BOTH = (CODED, PEELED)
DIRECTIONS = (1, 2, 3, 4)
LAWS = ("normal", "laplace", "empirical")
LOCAL_STEPS = (1, 2, 5)
NORM = 1.0
"""The length to which clients clip their updates where they keep differential privacy."""

QUIET = (f"scale-mia-coded(norm={NORM})", f"scale-mia-peeled(rounds=1,norm={NORM})")
"""The attacks that know of it."""

DATA = ("cifar10", "fashion-mnist", "hmnist")
NARROW = ("alexnet", "resnet", "vit")
"""The networks whose first linear layer has 512 neurons: the paper ends their rows at 512."""


@dataclass(frozen=True)
class GridRow:
    """A row of Table 4: its scenario, its batches, and how many samples each of them sees at least."""

    scenario: Scenario
    batches: tuple[int, ...]
    samples: int


@dataclass(frozen=True)
class Scale:
    """All of a scale.

    `usual` is the scenario of what goes beyond the paper, at the batch size `batch`.
    """

    rows: tuple[GridRow, ...]
    rivals: tuple[Rival, ...]
    starved: tuple[Scenario, ...]
    usual: Scenario
    samples: int
    starved_batches: tuple[int, ...] = STARVED_BATCHES
    batch: int = 256
    collisions: tuple[int, ...] = (64, 128, 256, 512, 650, 800, 1024)
    noises: tuple[str, ...] = ("0", "1e-06", "1e-05", "0.0001", "0.001", "0.01", "0.1", "1")
    bits: tuple[int, ...] = (8, 10, 12, 14, 16, 18, 22)
    head_batches: tuple[int, ...] = BATCHES
    head_bits: tuple[int, ...] = (16, 22, 30)
    head_samples: int = 2048
    minibatch: int = 8
    rounds: int = 16

    @property
    def plan(self) -> RoundPlan:
        """The rounds of what goes beyond the paper."""
        return RoundPlan(self.batch, self.samples, self.rounds)


def _rows(network: str, schooling: Schooling, samples: int) -> list[GridRow]:
    batches = BATCHES[:-1] if network in NARROW else BATCHES
    return [GridRow(Scenario(network, data, schooling), batches, samples) for data in DATA]


def _starved(network: str, data: str, schooling: Schooling) -> tuple[Scenario, ...]:
    """The attackers of Tables 5 and 6, then those of Tables 7 and 8 that are not among them."""
    shares = [Scenario(network, data, schooling, share=share) for share in printed.AMOUNTS[5]]
    classes = printed.AMOUNTS[7][:-1]
    return (*shares, *(Scenario(network, data, schooling, classes=int(count)) for count in classes))


def _laptop() -> Scale:
    """Large networks see fewer samples, since masking their updates takes seconds."""
    usual = Schooling(steps=600, batch_size=64, lr=1e-3, half=True)
    rows = (
        *_rows("cnn", Schooling(steps=12_000, batch_size=64, lr=3e-3), 1024),
        *_rows("alexnet", usual, 256),
        *_rows("resnet", usual, 256),
        *_rows("vit", Schooling(steps=300, batch_size=64, lr=5e-4, half=True), 128),
        *_rows("vgg", Schooling(steps=250, batch_size=64, lr=1e-3, half=True), 128),
    )
    return Scale(
        rows=rows,
        rivals=rivals.laptop(Scenario("resnet", "cifar10", usual), rows[0].scenario),
        starved=_starved("cnn", "cifar10", Schooling(steps=3000, batch_size=64, lr=3e-3)),
        usual=rows[0].scenario,
        samples=1024,
    )


def _paper() -> Scale:
    """The authors' recipe: Adam, with the learning rate of each data set and network."""
    longest = Schooling(steps=80_000, batch_size=100, lr=1e-4)
    usual, shorter = (Schooling(steps=n, batch_size=50, lr=lr) for n, lr in ((35_000, 1e-3), (20_000, 1e-4)))
    cnn = {"cifar10": usual, "fashion-mnist": shorter, "hmnist": usual}
    rows = [GridRow(Scenario("cnn", data, cnn[data]), BATCHES, 5120) for data in DATA]
    for network in (*NARROW, "vgg"):
        rows += _rows(network, longest, 5120)
    return Scale(
        rows=tuple(rows),
        rivals=rivals.paper(Scenario("resnet", "cifar10", longest), rows[0].scenario),
        starved=_starved("alexnet", "cifar10", longest),
        usual=rows[0].scenario,
        samples=5120,
        head_samples=5120,
        rounds=80,
    )


def _smoke() -> Scale:
    scenario = Scenario("mlp", "digits", Schooling(steps=1, batch_size=64, lr=3e-3))
    deep = Scenario("cnn", "digits", Schooling(steps=100, batch_size=64, lr=3e-3))
    return Scale(
        rows=(GridRow(scenario, (16, 64), 64), GridRow(deep, (16,), 32)),
        rivals=rivals.smoke(scenario, dataclasses.replace(scenario, network="resnet")),
        starved=(dataclasses.replace(scenario, share=0.1), dataclasses.replace(scenario, classes=2)),
        starved_batches=(16,),
        usual=scenario,
        batch=64,
        collisions=(64, 128),
        noises=("0", "1"),
        bits=(8, 22),
        head_batches=(16, 64),
        head_bits=(22,),
        head_samples=64,
        minibatch=4,
        samples=64,
    )


SCALES = {"smoke": _smoke(), "laptop": _laptop(), "paper": _paper()}


class ScaleMIAStudy(Study):
    """Can a server that crafts its model read whole batches from a secure sum, and what would stop it?"""

    name = "scale-mia"
    title = "Scale-MIA: whole batches from the sum of updates, behind secure aggregation"

    def __init__(self) -> None:
        self._scenarios = Scenarios()

    def seeds(self, scale: str) -> int:
        """One at all but the paper's scale: many victims, not many autoencoders, make the intervals."""
        return 5 if scale == "paper" else 1

    def cells(self, scale: str) -> list[Cell]:
        grid = SCALES[scale]
        entries: list[Cell] = []
        for row in grid.rows:
            entries += self._table_4(grid, row)
            entries += self._figure_6(grid, row.scenario)
            if row.scenario == grid.usual:
                entries += self._heads(grid)
                entries += self._beyond(grid)
            if row.scenario == grid.rivals[0].scenario:
                entries += [cell for rival in grid.rivals for cell in rival.cells(self._scenarios)]
        return [*entries, *self._tables_5_to_8(grid)]

    def conclude(self, findings: Sequence[Finding]) -> list[Verdict]:
        return verdicts(Measured(findings))

    def present(self, findings: Sequence[Finding], exhibits: Exhibits) -> Presentation:
        measured = Measured(findings)
        drawn = charts(measured, exhibits.histograms)
        return Presentation(tuple(tables(measured)), tuple(drawn), tuple(pictures(measured)))

    def _table_4(self, grid: Scale, row: GridRow) -> Iterator[Cell]:
        network, data = row.scenario.network, row.scenario.data
        for batch in row.batches:
            known = {CODED: printed.table_4(network, data, batch)}
            shown = {"pictures": batch == PICTURED, "distribution": True, "vetting": batch == PICTURED}
            plan = RoundPlan(batch, row.samples, grid.rounds)
            yield self._cell(Table4Cell(network, data, batch), row.scenario, plan, BOTH, known, **shown)

    def _heads(self, grid: Scale) -> Iterator[Cell]:
        """The published head and ours: from the exact sum, as Table 4 has it, and from rounded ones."""
        network, data = grid.usual.network, grid.usual.data
        for channel, batch in product((IDEAL, *map(str, grid.head_bits)), grid.head_batches):
            ideal = channel == IDEAL
            options = () if ideal else (f"bits={channel}",)
            known = {PUBLISHED: printed.table_4(network, data, batch)} if ideal else {}
            plan = RoundPlan(batch, grid.head_samples, grid.rounds, options, ideal=ideal)
            vetting = ideal and batch == PICTURED
            address = HeadsCell(channel, batch)
            yield self._cell(address, grid.usual, plan, HEADS, known, vetting=vetting)

    def _tables_5_to_8(self, grid: Scale) -> Iterator[Cell]:
        for scenario in grid.starved:
            table, amount = (7, scenario.classes) if scenario.classes else (5, scenario.share)
            for batch in grid.starved_batches:
                known = {CODED: printed.starved(scenario.network, scenario.data, table, amount, batch)}
                plan = RoundPlan(batch, grid.samples, grid.rounds)
                yield self._cell(cells.StarvedCell(table, amount, batch), scenario, plan, (CODED,), known)

    def _figure_6(self, grid: Scale, scenario: Scenario) -> Iterator[Cell]:
        """Figure 6 and the laws that it is about."""
        address = cells.Figure6Cell(scenario.network, scenario.data)
        yield Cell(str(address), lambda place: cells.brightness(self._scenarios.prepared(scenario, place)))
        if scenario.network == grid.usual.network:
            specs = tuple(f"scale-mia-coded(law='{law}')" for law in LAWS)
            yield self._cell(VariedCell("laws", scenario.data), scenario, grid.plan, specs)

    def _beyond(self, grid: Scale) -> Iterator[Cell]:
        """What the paper leaves open."""
        several = tuple(f"scale-mia-peeled(rounds=1,directions={count})" for count in DIRECTIONS)
        recipes = {str(steps): Recipe(epochs=steps, batch_size=0, lr=0.1) for steps in LOCAL_STEPS}
        recipes["minibatches"] = Recipe(epochs=1, batch_size=grid.minibatch, lr=0.1)
        for batch in grid.collisions:
            yield self._varied(grid, "collisions", str(batch), (CODED, *several), batch=batch)
        for noise in grid.noises:
            defence = f"differential-privacy(norm={NORM},noise={noise},clients={grid.plan.clients})"
            yield self._varied(grid, "dp", noise, (CODED, *QUIET), defence=defence)
        for bits in grid.bits:
            yield self._varied(grid, "quantisation", str(bits), BOTH, options=(f"bits={bits}",))
        for steps, recipe in recipes.items():
            yield self._varied(grid, "local-steps", steps, BOTH, recipe=recipe, strategy="fedavg")

    def _varied(self, grid: Scale, question: str, value: str, specs: tuple[str, ...], **changes: Any) -> Cell:
        plan = dataclasses.replace(grid.plan, **changes)
        return self._cell(VariedCell(question, value), grid.usual, plan, specs)

    def _cell(
        self,
        address: Address,
        scenario: Scenario,
        plan: RoundPlan,
        specs: tuple[str, ...],
        known: Mapping[str, printed.Printed] | None = None,
        **shown: bool,
    ) -> Cell:
        def run(place: Workplace) -> CellResult:
            prepared = self._scenarios.prepared(scenario, place)
            return cells.attacked(prepared, plan, specs, place, known or {}, **shown)

        return Cell(str(address), run)
