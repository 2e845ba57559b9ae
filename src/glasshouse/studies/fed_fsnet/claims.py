"""The paper's claims, and what the study asks beyond them, against what was measured.

Methods of one scenario and seed share the division of the images, the first weights and the participants'
draw, so they are compared in pairs. Accuracies are means over the last five rounds; what the last round alone
says stands beside them.
"""

from collections import Counter
from collections.abc import Iterator, Sequence, Set
from dataclasses import dataclass
from itertools import product

from glasshouse.measures.estimate import mean
from glasshouse.studies.fed_fsnet import measured
from glasshouse.studies.fed_fsnet.measured import BOTH, GLOBAL, LAST, Federations, Pair, Quantity, Scenario
from glasshouse.studies.fed_fsnet.printed import OTHERS, RIVALS, WORDS, printed
from glasshouse.verdicts.claims import Unit, Verdict, judge

LIMITED = 0.1
"""Added to what a client receives, so much of the model's bytes still counts as very little."""
NEGLIGIBLE = 0.01
"""A difference in AUC, or in a share, that counts as none."""
BESIDE_UPDATES = (
    (measured.REPORTED, "what clients report tells their labels", "label overlap over a blind guess"),
    (measured.MIMICKED, "what the server sends lies nearer to members", "AUC of the distance, over a half"),
    (measured.NEAREST, "what the server sends is nearest to members", "share of members, over a half"),
)
"""What is sent beside updates, what is claimed of it, and what is measured."""


def verdicts(federations: Federations) -> list[Verdict]:
    """A verdict on each claim, for all scenarios of a fraction together and for each of them."""
    everything = list(_learning(federations))
    for fraction in dict.fromkeys(scenario.fraction for scenario in federations.scenarios()):
        scenarios = [scenario for scenario in federations.scenarios() if scenario.fraction == fraction]
        everything += Claims(federations, scenarios).verdicts()
    return everything


def _learning(federations: Federations) -> Iterator[Verdict]:
    """Federations whose accuracies say little."""
    if federations.count:
        counts = Counter(cell.partition("/")[2] for cell, _ in federations.collapsed)
        named = ": " + ", ".join(f"{count} of {cell}" for cell, count in counts.items()) if counts else ""
        reason = f"{len(federations.collapsed)} of {federations.count} do not{named}"
        claim = "0. Every global model ends above its most frequent class"
        yield Verdict(claim, "refuted" if counts else "holds", reason)


@dataclass(frozen=True)
class Claims:
    """The claims about all scenarios of one fraction."""

    federations: Federations
    scenarios: Sequence[Scenario]

    def verdicts(self) -> Iterator[Verdict]:
        """In the paper's order, then what the study asks beyond it."""
        for claims in (self.margin, self.best, self.bounds, self.training, self.communication):
            yield from claims()
        for claims in (self.ablations, self.others, self.leaks):
            yield from claims()

    def margin(self) -> Iterator[Verdict]:
        """Section 4.4.1: Fed-FSNet surpasses the lower bound by a significant margin."""
        pairs = self._paired("fedavg")
        for quantity in BOTH:
            yield from self._above("1. Fed-FSNet", "fed-fsnet", pairs, quantity, singly=True)
            short: dict[Unit, float] = {}
            for pair in pairs:
                paper = _printed("fed-fsnet", pair, quantity)
                if paper is not None:
                    gains = self.federations.apart("fed-fsnet", [pair], quantity)
                    short |= {unit: gain - paper for unit, gain in gains.items()}
            if short:
                claim = f"1. Its gain in {quantity.name} over FedAvg is above the printed one{self._at}"
                yield judge(claim, short, "measured gain minus printed gain, late rounds")

    def best(self) -> Iterator[Verdict]:
        """Section 4.4.1: constantly the best performance, against each rival and against the best of them."""
        start, method = "2. Fed-FSNet", "fed-fsnet"
        for quantity in BOTH:
            for rival in RIVALS[1:]:
                yield from self._above(start, method, self._paired(rival, {rival}), quantity)
            rivals = [
                (scenario, self.federations.best(scenario, RIVALS, quantity)[0])
                for scenario in self.scenarios
                if set(RIVALS) & set(self.federations.methods(scenario)) > {"fedavg"}
            ]
            yield from self._above(start, method, rivals, quantity, "the best rival", singly=True)

    def bounds(self) -> Iterator[Verdict]:
        """Section 4.2: FedAvg on IID data bounds what can be had without."""
        for quantity in BOTH:
            pairs = [
                (scenario, method)
                for scenario, _ in self._paired("", {"upper-bound"})
                for method in self._order(scenario, quantity)[:1]
            ]
            yield from self._above(
                "3. FedAvg on IID data", "upper-bound", pairs, quantity, "the best without"
            )

    def training(self) -> Iterator[Verdict]:
        """Section 4.4.2: the training is more stable and converges faster than FedAvg's."""
        speed = self.federations.apart("fed-fsnet", self._paired("fedavg"), measured.SPEED)
        claim = f"4. Fed-FSNet converges faster than FedAvg{self._at}"
        yield judge(claim, speed, "Acc_global averaged over all rounds, Fed-FSNet minus FedAvg")
        for quantity in (measured.WOBBLE, measured.JUMP):
            falls = self.federations.apart("fedavg", self._paired("fed-fsnet"), quantity)
            claim = f"4. Fed-FSNet's training is more stable than FedAvg's, by the {quantity.name}{self._at}"
            yield judge(claim, falls, f"{quantity.name} of Acc_global at the end, FedAvg minus Fed-FSNet")

    def communication(self) -> Iterator[Verdict]:
        """Section 4.5: mimic samples have a very limited impact on the communication, and features less."""
        for scenario in self.scenarios:
            model = self.federations.at((scenario, "fedavg"), measured.DOWN)
            for method, what in (("fed-fsnet", "mimic samples"), ("fed-fsnet-features", "mimic features")):
                sent = self.federations.at((scenario, method), measured.DOWN)
                added = [sent[seed] / model[seed] - 1 for seed in sent if seed in model]
                if added:
                    yield Verdict(
                        f"5. The {what} add little to what a client receives ({scenario})",
                        "holds" if max(added) <= LIMITED else "refuted",
                        f"they add {max(added):.1%} to the bytes of the model (little: up to {LIMITED:.0%})",
                    )

    def ablations(self) -> Iterator[Verdict]:
        """Whether the parts of Fed-FSNet matter: each variant against it, and against FedAvg."""
        for scenario in self.scenarios:
            for method in self.federations.methods(scenario, "ablation"):
                for other in ("fed-fsnet", "fedavg"):
                    yield from self._above(f"6. {WORDS[method]},", method, [(scenario, other)], GLOBAL)

    def others(self) -> Iterator[Verdict]:
        """Beyond the paper: every other strategy against FedAvg, and the best of all against the next."""
        compared = [(method, "fedavg") for method in OTHERS]
        compared += [("fedrecall", rival) for rival in ("fedgen", "fed-fsnet")]
        for method, rival in compared:
            pairs, singly = self._paired(rival, {method, rival}), method == "fedrecall"
            yield from self._above(f"7. {WORDS[method]}", method, pairs, GLOBAL, singly=singly)
        for scenario, quantity in product(self.scenarios, BOTH):
            order = self._order(scenario, quantity)
            if len(order) > 1:
                start, pairs = f"7. {WORDS[order[0]]}, the best,", [(scenario, order[1])]
                rival = f"{WORDS[order[1]]}, the next of {len(order)}"
                yield from self._above(start, order[0], pairs, quantity, rival)

    def leaks(self) -> Iterator[Verdict]:
        """Beyond the paper: whether strategies give away more than FedAvg, and by what they send."""
        methods = dict.fromkeys(
            method for scenario in self.scenarios for method in self.federations.methods(scenario, "leaks")
        )
        for method in methods:
            gains = self.federations.apart(method, self._paired("fedavg"), measured.MEMBERSHIP)
            if method != "fedavg" and gains:
                claim = f"8. {WORDS[method]} gives away more of its members than FedAvg{self._at}"
                what = f"AUC of loss-threshold, minus FedAvg's (no difference: within {NEGLIGIBLE:g})"
                yield judge(claim, gains, what, negligible=NEGLIGIBLE)
        for (quantity, claimed, what), method in product(BESIDE_UPDATES, methods):
            values = self.federations.over_chance(self._paired(method), quantity)
            if values:
                claim = f"8. {WORDS[method]}: {claimed}{self._at}"
                yield judge(claim, values, what, negligible=NEGLIGIBLE)

    def _above(
        self,
        start: str,
        method: str,
        pairs: Sequence[Pair],
        quantity: Quantity,
        rival: str = "",
        *,
        singly: bool = False,
    ) -> Iterator[Verdict]:
        """Whether a method is above its rivals in late accuracy, in all scenarios and, `singly`, in each.

        The reason has the last round's accuracy beside it, and the paper's where it prints both. `rival` is
        what the claim calls them, where it is not their names.
        """
        groups = [pairs] if pairs else []
        if singly and len(pairs) > 1:
            groups += [[pair] for pair in pairs]
        for group in groups:
            late, last = (
                self.federations.apart(method, group, which) for which in (quantity, LAST[quantity])
            )
            rivals = " or ".join(dict.fromkeys(WORDS[other] for _, other in group))
            beside = [f"after the last round {_short(last)}"] if last else []
            paper = {gain for pair in group if (gain := _printed(method, pair, quantity)) is not None}
            if paper:
                ends = dict.fromkeys(f"{gain:+.3f}" for gain in (min(paper), max(paper)))
                beside.append(f"printed {' to '.join(ends)}")
            said = f" ({'; '.join(beside)})" if beside else ""
            where = _at([scenario for scenario, _ in group])
            claim = f"{start} has a higher {quantity.name} than {rival or rivals}{where}"
            yield judge(claim, late, f"{WORDS[method]} minus {rivals}, late rounds{said}")

    def _paired(self, other: str, methods: Set[str] = frozenset()) -> list[Pair]:
        """Each scenario whose table has all of `methods`, with the method that others are compared with."""
        return [
            (scenario, other)
            for scenario in self.scenarios
            if methods <= set(self.federations.methods(scenario))
        ]

    def _order(self, scenario: Scenario, quantity: Quantity) -> list[str]:
        """The methods on non-IID data, the best first."""
        methods = [method for method in self.federations.methods(scenario) if method != "upper-bound"]
        return self.federations.best(scenario, methods, quantity)

    @property
    def _at(self) -> str:
        return _at(self.scenarios)


def _printed(method: str, pair: Pair, quantity: Quantity) -> float | None:
    """The difference between a method and the one of `pair` that the paper prints."""
    scenario, other = pair
    position = BOTH.index(quantity)
    mine, yours = (printed(scenario.data, name, scenario.fraction)[position] for name in (method, other))
    return None if mine is None or yours is None else mine - yours


def _short(values: dict[Unit, float]) -> str:
    over = mean(list(values.values()))
    if over.low is None or over.high is None:
        return f"{over.value:+.4f}"
    return f"{over.value:+.4f}, {over.low:+.4f} to {over.high:+.4f} over all comparisons"


def _at(scenarios: Sequence[Scenario]) -> str:
    """Which scenarios a claim is about."""
    if len(scenarios) == 1:
        return f" ({scenarios[0]})"
    return f" (f = {scenarios[0].fraction}, {len(scenarios)} settings)"
