"""The grid of the study: which cells there are at a scale, and what each runs."""

import dataclasses
from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from itertools import product
from typing import Any

from glasshouse.exhibits import Exhibits
from glasshouse.findings import Finding
from glasshouse.learning.recipe import Recipe
from glasshouse.studies.address import Address
from glasshouse.studies.measured import Measured
from glasshouse.studies.scale_mia import autoencoders, cells, printed
from glasshouse.studies.scale_mia.addresses import (
    AutoencoderCell,
    Figure6Cell,
    HeadsCell,
    StarvedCell,
    Table4Cell,
    VariedCell,
)
from glasshouse.studies.scale_mia.beyond import beyond
from glasshouse.studies.scale_mia.cells import CODED, HEADS, PEELED, PICTURED, PUBLISHED
from glasshouse.studies.scale_mia.claims import verdicts
from glasshouse.studies.scale_mia.figures import charts, pictures
from glasshouse.studies.scale_mia.layout import tables
from glasshouse.studies.scale_mia.scales import SCALES, GridRow, Scale
from glasshouse.studies.scale_mia.scenarios import SCENARIOS, WEIGHTS, RoundPlan, Scenario
from glasshouse.studies.study import Cell, CellResult, Presentation, Study, Workplace
from glasshouse.verdicts.claims import Verdict

BOTH = (PUBLISHED, CODED)
OURS = (CODED, PEELED)
DIRECTIONS = (1, 2, 3, 4)
LAWS = ("normal", "laplace", "empirical")
LOCAL_STEPS = (1, 2, 5)
NORM = 1.0
"""The length to which clients clip their updates where they keep differential privacy."""

QUIET = (f"scale-mia-coded(norm={NORM})", f"scale-mia-peeled(rounds=1,norm={NORM})")
"""The attacks that know of it."""


class ScaleMIAStudy(Study):
    """Can a server that crafts its model read whole batches from a secure sum, and what would stop it?"""

    name = "scale-mia"
    title = "Scale-MIA: whole batches from the sum of updates, behind secure aggregation"

    def seeds(self, scale: str) -> int:
        """One at all but the paper's scale: many victims, not many autoencoders, make the intervals."""
        return 5 if scale == "paper" else 1

    def cells(self, scale: str) -> list[Cell]:
        """Searches and autoencoders come first: they take longest, and other cells wait for the latter.

        Each cell takes one core, so that as many run at once as there are workers.
        """
        grid = SCALES[scale]
        closed = [rival for rival in grid.rivals if rival.closed]
        entries = [cell for rival in grid.rivals if not rival.closed for cell in rival.cells()]
        entries += map(_autoencoder, grid.scenarios)
        for row in grid.rows:
            entries += _table_4(grid, row)
            entries += _figure_6(grid, row.scenario)
            if row.scenario == grid.usual:
                entries += _heads(grid)
                entries += _beyond(grid)
            own = [rival for rival in closed if rival.scenario == row.scenario]
            entries += [cell for rival in own for cell in rival.cells()]
        return [*entries, *_tables_5_to_8(grid)]

    def conclude(self, findings: Sequence[Finding]) -> list[Verdict]:
        return verdicts(Measured(findings))

    def present(self, findings: Sequence[Finding], exhibits: Exhibits) -> Presentation:
        measured = Measured(findings)
        drawn = charts(measured, exhibits.histograms)
        shown = (*tables(measured), *beyond(measured))
        return Presentation(shown, tuple(drawn), tuple(pictures(measured)))


def _autoencoder(scenario: Scenario) -> Cell:
    address = AutoencoderCell(scenario.network, scenario.data, scenario.granted)
    return Cell(str(address), partial(autoencoders.schooled, scenario), single=True)


def _table_4(grid: Scale, row: GridRow) -> Iterator[Cell]:
    """From an exact sum, as the paper has it; in the usual scenario with the head of its code too."""
    network, data = row.scenario.network, row.scenario.data
    specs: tuple[str, ...] = HEADS if row.scenario == grid.usual else BOTH
    if network == grid.usual.network:
        specs += (PEELED,)
    for batch in row.batches:
        known = {PUBLISHED: printed.table_4(network, data, batch)}
        shown = {"pictures": batch == PICTURED, "distribution": True, "vetting": batch == PICTURED}
        plan = RoundPlan(batch, row.seen(batch), grid.most, ideal=True)
        yield _cell(Table4Cell(network, data, batch), row.scenario, plan, specs, known, **shown)


def _heads(grid: Scale) -> Iterator[Cell]:
    """The published head and ours from rounded sums; Table 4 has them from the exact one."""
    for bits, batch in product(grid.head_bits, grid.head_batches):
        plan = RoundPlan(batch, grid.head_samples, grid.most, (f"bits={bits}",))
        yield _cell(HeadsCell(bits, batch), grid.usual, plan, HEADS)


def _tables_5_to_8(grid: Scale) -> Iterator[Cell]:
    for scenario in grid.starved:
        table, amount = (7, scenario.classes) if scenario.classes else (5, scenario.share)
        for batch in grid.starved_batches:
            known = {PUBLISHED: printed.starved(scenario.network, scenario.data, table, amount, batch)}
            plan = RoundPlan(batch, grid.starved_samples, grid.most, ideal=True)
            address = StarvedCell(table, scenario.network, amount, batch)
            yield _cell(address, scenario, plan, BOTH, known)


def _figure_6(grid: Scale, scenario: Scenario) -> Iterator[Cell]:
    """Figure 6 and the laws that it is about."""
    address = Figure6Cell(scenario.network, scenario.data)
    yield Cell(str(address), partial(autoencoders.latents, scenario), single=True)
    if scenario.network == grid.usual.network:
        specs = tuple(f"scale-mia-coded(law='{law}')" for law in LAWS)
        yield _cell(VariedCell("laws", scenario.data), scenario, grid.plan, specs)


def _beyond(grid: Scale) -> Iterator[Cell]:
    """What the paper leaves open; where the published attack is asked too, from an exact sum."""
    several = tuple(f"scale-mia-peeled(rounds=1,directions={count})" for count in DIRECTIONS)
    recipes = {str(steps): Recipe(epochs=steps, batch_size=0, lr=0.1) for steps in LOCAL_STEPS}
    recipes["minibatches"] = Recipe(epochs=1, batch_size=grid.minibatch, lr=0.1)
    for batch in grid.collisions:
        yield _varied(grid, "collisions", str(batch), (CODED, *several), batch=batch)
    for batch in grid.head_batches:
        changes = {"strategy": WEIGHTS, "samples": grid.head_samples, "ideal": True}
        yield _varied(grid, "weights", str(batch), HEADS, batch=batch, **changes)
    for noise in grid.noises:
        defence = f"differential-privacy(norm={NORM},noise={noise},clients={grid.plan.clients})"
        yield _varied(grid, "dp", noise, (*BOTH, *QUIET), defence=defence, ideal=True)
    for bits in grid.bits:
        yield _varied(grid, "quantisation", str(bits), OURS, options=(f"bits={bits}",))
    for steps, recipe in recipes.items():
        changes = {"recipe": recipe, "strategy": "fedavg", "ideal": True}
        yield _varied(grid, "local-steps", steps, (PUBLISHED, *OURS), **changes)


def _varied(grid: Scale, question: str, value: str, specs: tuple[str, ...], **changes: Any) -> Cell:
    plan = dataclasses.replace(grid.plan, **changes)
    return _cell(VariedCell(question, value), grid.usual, plan, specs)


def _cell(
    address: Address,
    scenario: Scenario,
    plan: RoundPlan,
    specs: tuple[str, ...],
    known: Mapping[str, printed.Printed] | None = None,
    **shown: bool,
) -> Cell:
    run = partial(_attacked, scenario, plan, specs, known or {}, shown)
    return Cell(str(address), run, single=True, printed=any((known or {}).values()))


def _attacked(
    scenario: Scenario,
    plan: RoundPlan,
    specs: tuple[str, ...],
    known: Mapping[str, printed.Printed],
    shown: Mapping[str, bool],
    place: Workplace,
) -> CellResult:
    prepared = SCENARIOS.prepared(scenario, place)
    return cells.attacked(prepared, plan, specs, place, known, **shown)
