"""The study: its grid at each scale."""

from collections.abc import Sequence
from functools import partial

from glasshouse.exhibits import Exhibits
from glasshouse.findings import Finding
from glasshouse.studies.fed_fsnet.cells import table_cell
from glasshouse.studies.fed_fsnet.claims import verdicts
from glasshouse.studies.fed_fsnet.figures import charts
from glasshouse.studies.fed_fsnet.layout import tables
from glasshouse.studies.fed_fsnet.leaks import leak_cell
from glasshouse.studies.fed_fsnet.measured import Measured
from glasshouse.studies.fed_fsnet.scales import TASKS
from glasshouse.studies.study import Cell, Presentation, Study
from glasshouse.verdicts.claims import Verdict


class FedFSNetStudy(Study):
    """Which strategy does best where devices hold two classes each, and what does it cost and leak?"""

    name = "fed-fsnet"
    title = "Strategies against non-IID data: accuracy, communication and leakage"

    def cells(self, scale: str) -> list[Cell]:
        """The federations of every table first; attacks on them, which find them trained, after these."""
        settings = [(task, fraction) for task in TASKS[scale] for fraction in task.fractions]
        made: list[Cell] = []
        for task, fraction in settings:
            watched = fraction < 1
            made += [
                Cell(
                    f"table/{task.head(fraction)}/{row.name}",
                    partial(table_cell, task, fraction, row, watched),
                    single=True,
                )
                for row in task.lines(fraction)
            ]
            made += [
                Cell(
                    f"ablation/{task.head(fraction)}/{row.name}",
                    partial(table_cell, task, fraction, row, False),
                    single=True,
                )
                for row in (task.ablations if watched else ())
            ]
        made += [
            Cell(
                f"leaks/{task.head(fraction)}/{row.name}",
                partial(leak_cell, task, fraction, row),
                single=True,
            )
            for task, fraction in settings
            if fraction < 1
            for row in task.lines(fraction)
        ]
        return made

    def conclude(self, findings: Sequence[Finding]) -> list[Verdict]:
        return verdicts(Measured(findings))

    def present(self, findings: Sequence[Finding], exhibits: Exhibits) -> Presentation:
        measured = Measured(findings)
        return Presentation(tuple(tables(measured)), tuple(charts(measured)))
