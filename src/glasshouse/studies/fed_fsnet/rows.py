"""The lines of the tables: strategies with their options, and how the images are divided among devices."""

from dataclasses import dataclass
from typing import Any

SHARDS = "shards(per_client=2)"


@dataclass(frozen=True)
class Row:
    """A strategy with its options, as pairs, on devices that hold what `partition` says."""

    name: str
    strategy: str
    options: tuple[tuple[str, Any], ...] = ()
    partition: str = SHARDS

    def spec(self, more: tuple[tuple[str, Any], ...] = ()) -> str:
        """The strategy as users type it, with `more` options, which the row's own override."""
        options = dict(more) | dict(self.options)
        written = ", ".join(f"{key}={value!r}" for key, value in options.items())
        return f"{self.strategy}({written})" if written else self.strategy


def _fsnet(name: str, **options: Any) -> Row:
    return Row(name, "fed-fsnet", tuple(options.items()))


UPPER = Row("upper-bound", "fedavg", partition="iid")
FEDAVG = Row("fedavg", "fedavg")
AFL = Row("afl", "afl")
FSNET = _fsnet("fed-fsnet")
RIVALS = (FEDAVG, AFL, Row("feddf", "feddf"), Row("fedgen", "fedgen"))
"""What the paper compares Fed-FSNet with, in the order of its Table 2."""
PAPERS = (UPPER, *RIVALS, FSNET)
RECALL = Row("fedrecall", "fedrecall")
"""What Fed-FSNet might have been: features instead of samples, from the global model alone too."""
OTHERS = (
    *(Row(name, name) for name in ("fedprox", "scaffold", "fedavgm", "fedadam")),
    _fsnet("fed-fsnet-features", form="features"),
    RECALL,
)
ALL = (*PAPERS, *OTHERS)
ABLATIONS = (
    _fsnet("hidden-16", hidden=16),
    _fsnet("mixture-single", mixture="single"),
    _fsnet("beta-constant", decay=1.0),
    _fsnet("target-class", target="class"),
    _fsnet("target-global", target="global"),
)
"""Fed-FSNet with one thing changed each."""

WORDS = {
    "upper-bound": "FedAvg, IID",
    "fedavg": "FedAvg",
    "afl": "AFL",
    "feddf": "FedDF",
    "fedgen": "FedGEN",
    "fed-fsnet": "Fed-FSNet",
    "fedprox": "FedProx",
    "scaffold": "SCAFFOLD",
    "fedavgm": "FedAvgM",
    "fedadam": "FedAdam",
    "fed-fsnet-features": "Fed-FSNet with features",
    "fedrecall": "FedRecall",
    "hidden-16": "Fed-FSNet, hidden model of 16 neurons",
    "mixture-single": "Fed-FSNet, one Gaussian for all devices",
    "beta-constant": "Fed-FSNet, beta stays 1",
    "target-class": "Fed-FSNet, mimics learned as their class",
    "target-global": "Fed-FSNet, mimics learned as the global model answers",
}
