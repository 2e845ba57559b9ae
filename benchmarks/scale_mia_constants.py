"""Choose the constants of `scale-mia-coded` and `scale-mia-peeled` on auxiliary images alone.

    python benchmarks/scale_mia_constants.py [--steps 3000] [--rounds 8] [--constants spread] [--bits 22,16]

The attacker rehearses with what it has. CIFAR-10's training images, all of which are auxiliary ones in the
study `scale-mia`, play both parts: an autoencoder learns from some of them, and clients hold others. The
study's victims are test images, of which none is read. Printed are recovery rates through the channel
`secure` with entries of so many bits, with t intervals over rounds, for each value of

- `spread`: `sorting.HEAVIEST`, how much more the heaviest class weighs than the lightest. Kept is the value
  with the highest mean over batch sizes and bits: more helps while the channel carries the lightest class
- `opposite`: `sorting.LIGHTEST`, the weight of the one class against the others
- `tolerance`: `reading.TOLERANCE`, how far a bin's weight may be from that of a lone sample
- `load`: `peeling.LOAD`, the samples per row up to which three directions find more than one
"""

import argparse
import dataclasses
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import product
from pathlib import Path
from types import ModuleType
from unittest.mock import patch

import torch

from glasshouse.access import Protocol
from glasshouse.attacks import ATTACKS
from glasshouse.attacks.attack import Knowledge
from glasshouse.attacks.crafted import peeling, reading, sorting
from glasshouse.attacks.crafted.cut import find_cut
from glasshouse.attacks.crafted.surrogate import Schooling, make_surrogate
from glasshouse.auditing.grants import grant
from glasshouse.data.dataset import Dataset
from glasshouse.data.sources import load
from glasshouse.evidence.reconstruction import Reconstructions
from glasshouse.learning.engine import Engine
from glasshouse.learning.layout import Layout
from glasshouse.learning.recipe import Recipe
from glasshouse.learning.seeds import derive, torch_rng
from glasshouse.measures.estimate import Estimate, mean
from glasshouse.measures.pictures import RECOVERED, match
from glasshouse.models.loading import seeded_model
from glasshouse.progress import Progress
from glasshouse.studies.scale_mia.scenarios import Prepared, RoundPlan, Scenario, cases, divided
from glasshouse.studies.study import Workplace

SEED = 17
"""Another than those of the study, whose networks are drawn from 0 on."""


@dataclass(frozen=True)
class Constant:
    """A constant, the values to try, and the attacks and batch sizes that show what it is worth."""

    module: ModuleType
    name: str
    values: tuple[float, ...]
    specs: tuple[str, ...]
    batches: tuple[int, ...]


CONSTANTS: Mapping[str, Constant] = {
    "spread": Constant(
        sorting, "HEAVIEST", (2, 5, 10, 20, 50, 100), ("scale-mia-coded",), (64, 256, 512, 1024)
    ),
    "opposite": Constant(sorting, "LIGHTEST", (0.1, 0.3, 1.0), ("scale-mia-coded",), (256, 1024)),
    "tolerance": Constant(
        reading, "TOLERANCE", (0.005, 0.01, 0.02, 0.05), ("scale-mia-peeled(rounds=1)",), (256, 512, 720)
    ),
    "load": Constant(
        peeling,
        "LOAD",
        (peeling.LOAD,),  # what it decides between is asked for by name
        ("scale-mia-coded", "scale-mia-peeled(rounds=1,directions=3)"),
        (640, 720, 760, 800, 840, 880),
    ),
}


def rehearsal(dataset: Dataset, scenario: Scenario, seed: int = SEED) -> Prepared:
    """The scenario among training images only: an autoencoder of some, and others for clients to hold."""
    auxiliary, shown, held = divided(Dataset(dataset.name, dataset.train), scenario, seed)
    network = seeded_model(scenario.network, auxiliary.shape, auxiliary.classes, derive(seed, "weights"))
    protocol = Protocol(network, Layout.of(network), Recipe(), auxiliary.shape, auxiliary.classes)
    rng = torch_rng(seed, "autoencoder")
    surrogate = make_surrogate(protocol, find_cut(protocol), auxiliary.x, scenario.schooling, rng)
    return Prepared(scenario, network, auxiliary, shown, held, surrogate)


def recovery(prepared: Prepared, spec: str, plan: RoundPlan, place: Workplace) -> Estimate:
    """The recovery rate of an attack over rounds whose clients hold the scenario's held images."""
    rates = []
    for case in cases(prepared, plan, place):
        knowledge = Knowledge(auxiliary=prepared.auxiliary, surrogate=prepared.surrogate)
        access, truth = grant(case, plan.adversary).access, case.truth
        evidence = ATTACKS.make(spec).run(access, knowledge, torch_rng(place.seed, "attack", spec))
        assert isinstance(evidence, Reconstructions)
        assert truth is not None
        x = torch.cat([truth.held_by(part.clients).x for part in evidence.parts])
        rates.append(float((match(x, evidence.x).psnr >= RECOVERED).mean()))
    return dataclasses.replace(mean(rates, bounds=(0.0, 1.0)), n=len(rates) * plan.batch)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--steps", type=int, default=3000)
    parser.add_argument("--rounds", type=int, default=8)
    parser.add_argument("--constants", default=",".join(CONSTANTS))
    parser.add_argument("--bits", default="22,16")
    options = parser.parse_args()
    schooling = Schooling(steps=options.steps, batch_size=64, lr=3e-3)
    prepared = rehearsal(load("cifar10"), Scenario("cnn", "cifar10", schooling))
    with _workplace() as place:
        for name in options.constants.split(","):
            constant = CONSTANTS[name]
            print(f"\n{name}: {constant.module.__name__}.{constant.name} = "
                  f"{getattr(constant.module, constant.name)}")  # fmt: skip
            for bits, value, spec in product(options.bits.split(","), constant.values, constant.specs):
                with patch.object(constant.module, constant.name, value):
                    shown = "; ".join(_rates(prepared, constant, spec, bits, options.rounds, place))
                print(f"{bits} bits, {value:g}, {spec}: {shown}", flush=True)


def _rates(
    prepared: Prepared, constant: Constant, spec: str, bits: str, rounds: int, place: Workplace
) -> Iterator[str]:
    for batch in constant.batches:
        plan = RoundPlan(batch, rounds * batch, rounds, options=(f"bits={bits}",))
        rate = recovery(prepared, spec, plan, place)
        yield f"{batch}: {rate.value:.3f} [{rate.low:.3f}, {rate.high:.3f}] n={rate.n}"


@contextmanager
def _workplace() -> Iterator[Workplace]:
    with tempfile.TemporaryDirectory() as folder, Engine(1) as engine:
        yield Workplace(engine, SEED, Path(folder), Path(folder), Progress(quiet=True))


if __name__ == "__main__":
    main()
