"""The study: its grid at each scale."""

from collections.abc import Sequence
from functools import partial

from glasshouse.exhibits import Exhibits
from glasshouse.findings import Finding
from glasshouse.studies.batch_robustness.cells import central_cell, federated_cell
from glasshouse.studies.batch_robustness.claims import verdicts
from glasshouse.studies.batch_robustness.figures import charts
from glasshouse.studies.batch_robustness.layout import tables
from glasshouse.studies.batch_robustness.measured import Measured
from glasshouse.studies.batch_robustness.scales import FEDERATED, ROWS
from glasshouse.studies.study import Cell, Presentation, Study
from glasshouse.verdicts.claims import Verdict


class BatchRobustnessStudy(Study):
    """Do batch size, learning rate and momentum decide how robust a model is, and does federation cost it?"""

    name = "batch-robustness"
    title = "Robustness and curvature against batch size, in one place and in many"

    def cells(self, scale: str) -> list[Cell]:
        made = [
            Cell(
                f"{row.kind}/{row.data}/{row.model}/{setting.name}/{batch}",
                partial(central_cell, row, setting, batch),
                single=True,
            )
            for row in ROWS[scale]
            for setting in row.settings
            for batch in row.batches
        ]
        row = FEDERATED[scale]
        made += [
            Cell(
                f"federated/{row.data}/{row.model}/{setting.name}/{division.partition('(')[0]}"
                f"/{clients}x{row.batch}",
                partial(federated_cell, row, setting, division, clients),
                single=True,
            )
            for setting in row.settings
            for division in row.partitions
            for clients in row.clients
        ]
        return made

    def conclude(self, findings: Sequence[Finding]) -> list[Verdict]:
        return verdicts(Measured(findings))

    def present(self, findings: Sequence[Finding], exhibits: Exhibits) -> Presentation:
        measured = Measured(findings)
        return Presentation(tuple(tables(measured)), tuple(charts(measured)))
