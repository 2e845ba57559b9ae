"""The study: its grid at each scale."""

from collections.abc import Sequence
from functools import partial

from glasshouse.exhibits import Exhibits
from glasshouse.findings import Finding
from glasshouse.learning.recipe import Recipe
from glasshouse.studies.scale_mia import printed
from glasshouse.studies.scale_mia.beyond import further_tables
from glasshouse.studies.scale_mia.brightness import brightness_rows
from glasshouse.studies.scale_mia.cells import PEELED, PLAIN, PUBLISHED, Extras, Meeting, attacked
from glasshouse.studies.scale_mia.claims import verdicts
from glasshouse.studies.scale_mia.figures import charts, pictures
from glasshouse.studies.scale_mia.layout import paper_tables
from glasshouse.studies.scale_mia.measured import Measured
from glasshouse.studies.scale_mia.scales import SCALES, Scale
from glasshouse.studies.scale_mia.stage import STEP, Conditions, crowd
from glasshouse.studies.scale_mia.targets import Target, Targets
from glasshouse.studies.study import Cell, Presentation, Study, Workplace
from glasshouse.verdicts.claims import Verdict

BOTH = (PUBLISHED, PEELED)
DIRECTIONS = (1, 2, 3, 4)
LAWS = ("normal", "laplace", "empirical")
LOCAL_STEPS = (1, 2, 5)
MINIBATCHES = "minibatches"
NORM = 1.0
"""The length to which clients clip their updates where they keep differential privacy."""

QUIET = (f"scale-mia(norm={NORM})", f"scale-mia-peeled(rounds=1,norm={NORM})")
"""The attacks that know of it."""

FIGURES = 64
"""The batch size of the paper's pictures."""


class ScaleMIAStudy(Study):
    """Can a server that crafts its model read whole batches from a secure sum, and what would stop it?"""

    name = "scale-mia"
    title = "Scale-MIA: whole batches from the sum of updates, behind secure aggregation"

    def __init__(self) -> None:
        self._targets = Targets()

    def seeds(self, scale: str) -> int:
        """One at all but the paper's scale: many victims, not many autoencoders, make the intervals."""
        return 5 if scale == "paper" else 1

    def cells(self, scale: str) -> list[Cell]:
        own = SCALES[scale]
        made = []
        for row in own.rows:
            made += [self._table_4(own, row.target, batch, row.samples) for batch in row.batches]
            made += self._about(own, row.target)
            if row.target == own.usual:
                made += self._beyond(own)
            if row.target == own.rivals.target:
                made += self._table_3(own)
        return made + self._starved(own)

    def conclude(self, findings: Sequence[Finding]) -> list[Verdict]:
        return verdicts(Measured(findings))

    def present(self, findings: Sequence[Finding], exhibits: Exhibits) -> Presentation:
        own = Measured(findings)
        tables = (*paper_tables(own), *further_tables(own))
        return Presentation(tables, tuple(charts(own)), tuple(pictures(own)))

    def _table_4(self, own: Scale, target: Target, batch: int, samples: int) -> Cell:
        known = {PUBLISHED: printed.table_4(target.network, target.data, batch)}
        extras = Extras(pictures=batch == FIGURES, distribution=True, vetting=batch == FIGURES)
        meeting = Meeting(crowd(batch), samples, own.rounds)
        return self._cell(
            f"table-4/{target.network}/{target.data}/{batch}", target, meeting, BOTH, known, extras
        )

    def _table_3(self, own: Scale) -> list[Cell]:
        made = []
        for spec, rounds in own.rivals.attacks:
            attack = spec.partition("(")[0]
            for batch in own.rivals.batches:
                target = own.rivals.target
                known = {spec: printed.table_3(target.network, target.data, attack, batch)}
                meeting = Meeting(crowd(batch), rounds * batch, rounds)
                name = f"table-3/{attack}/{batch}"
                extras = Extras(vetting=True)
                made.append(self._cell(name, target, meeting, (spec,), known, extras))
        return made

    def _starved(self, own: Scale) -> list[Cell]:
        """Tables 5 to 8."""
        made = []
        for target in own.starved:
            for batch in own.starved_batches:
                named = target.network, target.data
                if target.classes:
                    head = f"table-7/{target.classes}"
                    known = printed.tables_7_and_8(*named, target.classes, batch)
                else:
                    head = f"table-5/{target.share:g}"
                    known = printed.tables_5_and_6(*named, target.share, batch)
                meeting = Meeting(crowd(batch), own.samples, own.rounds)
                name = f"{head}/{batch}"
                made.append(self._cell(name, target, meeting, (PUBLISHED,), {PUBLISHED: known}))
        return made

    def _about(self, own: Scale, target: Target) -> list[Cell]:
        """Figure 6 and the laws that it is about."""
        figure = Cell(f"figure-6/{target.network}/{target.data}", partial(self._brightness, target))
        if target.network != own.usual.network:
            return [figure]
        specs = tuple(f"scale-mia(law='{law}')" for law in LAWS)
        meeting = Meeting(crowd(own.batch), own.samples, own.rounds)
        return [figure, self._cell(f"laws/{target.data}", target, meeting, specs)]

    def _beyond(self, own: Scale) -> list[Cell]:
        """What the paper leaves open."""
        several = tuple(f"scale-mia-peeled(rounds=1,directions={count})" for count in DIRECTIONS)
        meetings: dict[str, tuple[Meeting, tuple[str, ...]]] = {}
        for batch in own.collisions:
            meeting = Meeting(crowd(batch), own.samples, own.rounds)
            meetings[f"collisions/{batch}"] = (meeting, (PUBLISHED, *several))
        for noise in own.noises:
            meetings[f"dp/{noise}"] = (self._private(own, noise), (PUBLISHED, *QUIET))
        for bits in own.bits:
            meeting = Meeting(crowd(own.batch, f"bits={bits}"), own.samples, own.rounds)
            meetings[f"quantisation/{bits}"] = (meeting, BOTH)
        recipes = {str(steps): Recipe(epochs=steps, batch_size=0, lr=0.1) for steps in LOCAL_STEPS}
        recipes[MINIBATCHES] = Recipe(epochs=1, batch_size=own.minibatch, lr=0.1)
        for name, recipe in recipes.items():
            conditions = Conditions(recipe, "fedavg")
            meeting = Meeting(crowd(own.batch), own.samples, own.rounds, conditions)
            meetings[f"local-steps/{name}"] = (meeting, BOTH)
        return [self._cell(name, own.usual, *found) for name, found in meetings.items()]

    def _private(self, own: Scale, noise: str) -> Meeting:
        group = crowd(own.batch)
        defence = f"differential-privacy(norm={NORM},noise={noise},clients={group.clients})"
        return Meeting(group, own.samples, own.rounds, Conditions(STEP, "fedsgd", defence))

    def _cell(
        self,
        name: str,
        target: Target,
        meeting: Meeting,
        specs: tuple[str, ...],
        known: dict[str, printed.Printed] | None = None,
        extras: Extras = PLAIN,
    ) -> Cell:
        def run(place: Workplace) -> list[Finding]:
            return attacked(self._targets.of(target, place), meeting, specs, place, known, extras)

        return Cell(name, run)

    def _brightness(self, target: Target, place: Workplace) -> list[Finding]:
        return brightness_rows(self._targets.of(target, place))
