"""What is varied at each scale, and every choice that the paper leaves open."""

from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from typing import Any

from glasshouse.exhibits import Exhibits
from glasshouse.findings import Finding
from glasshouse.studies.fed_fsnet.cells import leak_cell, table_cell
from glasshouse.studies.fed_fsnet.claims import verdicts
from glasshouse.studies.fed_fsnet.layout import charts, tables
from glasshouse.studies.fed_fsnet.measured import Federations
from glasshouse.studies.fed_fsnet.training import Benchmark, Method
from glasshouse.studies.study import Cell, Presentation, Study
from glasshouse.verdicts.claims import Verdict


def _fsnet(name: str, **options: Any) -> Method:
    return Method(name, "fed-fsnet", tuple(options.items()))


UPPER = Method("upper-bound", "fedavg", partition="iid")
FEDAVG, AFL, FEDDF, FEDGEN = (Method(name, name) for name in ("fedavg", "afl", "feddf", "fedgen"))
FSNET = _fsnet("fed-fsnet")
RECALL = Method("fedrecall", "fedrecall")
"""What Fed-FSNet might have been: features instead of samples, from the global model alone too."""
PAPERS = (UPPER, FEDAVG, AFL, FEDDF, FEDGEN, FSNET)
ALL = (
    *PAPERS,
    *(Method(name, name) for name in ("fedprox", "scaffold", "fedavgm", "fedadam")),
    _fsnet("fed-fsnet-features", form="features"),
    RECALL,
)
ABLATIONS = (
    _fsnet("hidden-16", hidden=16),
    _fsnet("mixture-single", mixture="single"),
    _fsnet("beta-constant", decay=1.0),
    _fsnet("target-class", target="class"),
    _fsnet("target-global", target="global"),
)
"""Fed-FSNet with one thing changed each."""


SMOKE = Benchmark(
    "digits",
    "mlp",
    fraction=0.25,
    rounds=8,
    methods=ALL,
    ablations=ABLATIONS[-2:],
    epochs=3,
    batch=10,
    lr=0.05,
    options=(("feddf", (("steps", 40), ("patience", 20))), ("fed-fsnet", (("every", 3),))),
    clients=20,
    held_out=100,
    nonmembers=200,
    test=400,
    local_test=100,
    attacked=50,
)
LAPTOP = Benchmark(
    "fashion-mnist", "mlp", 0.1, 50, ALL, ABLATIONS, options=(("feddf", (("steps", 400), ("patience", 100))),)
)
SHORTER = replace(LAPTOP, methods=(*PAPERS, RECALL), ablations=())


def _full(data: str, model: str, ablations: tuple[Method, ...] = ()) -> tuple[Benchmark, Benchmark]:
    """A tenth of the clients a round, and all of them, where AFL is FedAvg and has no cell."""
    tenth = Benchmark(data, model, 0.1, 50, ALL, ablations)
    methods = tuple(method for method in ALL if method is not AFL)
    return tenth, replace(tenth, fraction=1.0, methods=methods, ablations=())


BENCHMARKS = {
    "smoke": (SMOKE,),
    "laptop": (
        replace(SHORTER, data="mnist"),
        LAPTOP,
        replace(SHORTER, data="cifar10", rounds=20),
        replace(SHORTER, model="lenet", rounds=15, methods=(UPPER, FEDAVG, FSNET)),
    ),
    "paper": (
        *_full("mnist", "lenet"),
        *_full("fashion-mnist", "lenet", ABLATIONS),
        *_full("cifar10", "stdcnn"),
    ),
}


class FedFSNetStudy(Study):
    """Which strategy does best where clients hold two classes each, and what does it cost and leak?"""

    name = "fed-fsnet"
    title = "Strategies against non-IID data: accuracy, communication and leakage"

    def cells(self, scale: str) -> list[Cell]:
        """The federations of every table first; attacks on them, which find them trained, after these."""
        cells = []
        for benchmark in BENCHMARKS[scale]:
            attacked = benchmark.fraction < 1
            cells += [_cell("table", benchmark, method, table_cell, attacked) for method in benchmark.methods]
            cells += [
                _cell("ablation", benchmark, method, table_cell, False) for method in benchmark.ablations
            ]
        return cells + [
            _cell("leaks", benchmark, method, leak_cell)
            for benchmark in BENCHMARKS[scale]
            for method in benchmark.methods
            if benchmark.fraction < 1
        ]

    def conclude(self, findings: Sequence[Finding]) -> list[Verdict]:
        return verdicts(Federations(findings))

    def present(self, findings: Sequence[Finding], exhibits: Exhibits) -> Presentation:
        measured = Federations(findings, exhibits.training)
        return Presentation(tuple(tables(measured)), tuple(charts(measured)))


def _cell(kind: str, benchmark: Benchmark, method: Method, run: Callable[..., Any], *more: bool) -> Cell:
    return Cell(str(benchmark.address(kind, method)), partial(run, benchmark, method, *more), single=True)
