"""What is varied at each scale, and every choice that the paper leaves open."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from functools import partial
from typing import Any

from glasshouse.exhibits import Exhibits
from glasshouse.findings import Finding
from glasshouse.studies.fed_fsnet.cells import leak_cell, table_cell
from glasshouse.studies.fed_fsnet.claims import verdicts
from glasshouse.studies.fed_fsnet.layout import charts, tables
from glasshouse.studies.fed_fsnet.measured import Federations
from glasshouse.studies.fed_fsnet.networks import HELD_OUT
from glasshouse.studies.fed_fsnet.printed import printed
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
FEDPROX, SCAFFOLD, FEDAVGM, FEDADAM = (
    Method(name, name) for name in ("fedprox", "scaffold", "fedavgm", "fedadam")
)
FEATURES = _fsnet("fed-fsnet-features", form="features")
ALL = (*PAPERS, FEDPROX, SCAFFOLD, FEDAVGM, FEDADAM, FEATURES, RECALL)
HIDDEN_16 = _fsnet("hidden-16", hidden=16)
SINGLE = _fsnet("mixture-single", mixture="single")
BETA_CONSTANT = _fsnet("beta-constant", decay=1.0)
TARGET_CLASS = _fsnet("target-class", target="class")
TARGET_GLOBAL = _fsnet("target-global", target="global")
ABLATIONS = (HIDDEN_16, SINGLE, BETA_CONSTANT, TARGET_CLASS, TARGET_GLOBAL)
"""Fed-FSNet with one thing changed each."""


def _behind(extractor: str) -> tuple[Method, ...]:
    """FedAvg, its upper bound and Fed-FSNet on features of images, by an extractor trained elsewhere."""
    return tuple(
        replace(method, name=f"extractor-{method.name}", extractor=extractor)
        for method in (UPPER, FEDAVG, FSNET)
    )


SMOKE = Benchmark(
    "digits",
    "mlp",
    fraction=0.25,
    rounds=8,
    methods=ALL,
    ablations=ABLATIONS[-2:],
    behind=_behind(HELD_OUT),
    attacked=True,
    epochs=3,
    batch=10,
    lr=0.05,
    options=(("feddf", (("steps", 40), ("patience", 20))), ("fed-fsnet", (("every", 3),))),
    clients=20,
    held_out=100,
    nonmembers=200,
    test=400,
    local_test=100,
    moved=50,
)
SHORT_FEDDF = (("feddf", (("steps", 400), ("patience", 100))),)
MNIST = Benchmark("mnist", "mlp", 0.1, 50, PAPERS, attacked=True, options=SHORT_FEDDF)
FASHION = replace(
    MNIST,
    data="fashion-mnist",
    methods=(*PAPERS, SCAFFOLD, RECALL),
    ablations=(HIDDEN_16, BETA_CONSTANT, TARGET_CLASS),
)
BOUNDS = replace(MNIST, methods=(UPPER, FEDAVG, FSNET), attacked=False, seeds=2)
"""The rows of Table 1."""
EXTRACTORS = {"mnist": "fashion-mnist", "fashion-mnist": "mnist", "cifar10": "cifar100"}
"""What the extractor of a data set learns from: images of other things."""


def _section_4_5(data: str, seeds: int | None = None) -> Benchmark:
    """Methods behind an extractor, whose features go to `mlp`."""
    return Benchmark(data, "mlp", 0.1, 50, (), behind=_behind(EXTRACTORS[data]), seeds=seeds)


def _full(data: str, model: str, ablations: tuple[Method, ...] = ()) -> Iterator[Benchmark]:
    """A tenth of the clients a round, and all of them, where AFL is FedAvg and has no cell."""
    methods = tuple(method for method in ALL if method is not AFL)
    yield Benchmark(data, model, 0.1, 50, ALL, ablations, attacked=True)
    yield _section_4_5(data)
    yield Benchmark(data, model, 1.0, 50, methods)


BENCHMARKS = {
    "smoke": (SMOKE,),
    "laptop": (
        MNIST,
        FASHION,
        *(_section_4_5(data, seeds=2) for data in ("mnist", "fashion-mnist")),
        replace(BOUNDS, data="fashion-mnist", model="lenet"),
        replace(BOUNDS, data="cifar10", model="gn-cnn"),
        *(replace(BOUNDS, data=data, fraction=1.0) for data in ("mnist", "fashion-mnist")),
    ),
    "paper": (
        *_full("mnist", "lenet"),
        *_full("fashion-mnist", "lenet", ABLATIONS),
        *_full("cifar10", "gn-cnn"),
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
            watched = benchmark.attacked
            cells += [_cell("table", benchmark, method, table_cell, watched) for method in benchmark.methods]
            for kind, methods in (("ablation", benchmark.ablations), ("extractor", benchmark.behind)):
                cells += [_cell(kind, benchmark, method, table_cell, False) for method in methods]
        return cells + [
            _cell("leaks", benchmark, method, leak_cell)
            for benchmark in BENCHMARKS[scale]
            for method in benchmark.methods
            if benchmark.attacked
        ]

    def conclude(self, findings: Sequence[Finding]) -> list[Verdict]:
        return verdicts(Federations(findings))

    def present(self, findings: Sequence[Finding], exhibits: Exhibits) -> Presentation:
        measured = Federations(findings, exhibits.training)
        return Presentation(tuple(tables(measured)), tuple(charts(measured)))


def _cell(kind: str, benchmark: Benchmark, method: Method, run: Callable[..., Any], *more: bool) -> Cell:
    run_it = partial(run, benchmark, method, *more)
    known = kind == "table" and printed(benchmark.data, method.name, benchmark.fraction) != (None, None)
    return Cell(
        str(benchmark.address(kind, method)), run_it, single=True, seeds=benchmark.seeds, printed=known
    )
