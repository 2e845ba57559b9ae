"""Searching a policy for named data and a named model, and the policy file that comes of it."""

import json
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from torch import Tensor, nn

from glasshouse.data.dataset import Dataset
from glasshouse.data.sources import FUNCTION, as_dataset, load
from glasshouse.defences.policies.search import Outcome, Plan, Ranked, search
from glasshouse.learning.engine import Engine
from glasshouse.learning.layout import read_vector
from glasshouse.learning.seeds import derive
from glasshouse.models.loading import checked_copy, seeded_model
from glasshouse.progress import Progress
from glasshouse.provenance import Origin, own_code, versions
from glasshouse.runfolder import open_run
from glasshouse.store import hashed, slug, write_text


@dataclass(frozen=True)
class Found:
    """What a search found, and the policy file that it wrote."""

    file: Path
    outcome: Outcome


def run_search(
    data: Any = "digits",
    model: str | nn.Module = "lenet",
    plan: Plan | None = None,
    *,
    out: Path | str | None = None,
    workers: int | None = None,
    engine: str = "processes",
    quiet: bool = False,
) -> Found:
    """Search a policy for `model` on `data`, or go on with a search that was stopped.

    `data` is what `--data` may name, a `Dataset`, `Images` or arrays (x, y); `model` a name or a network,
    which counts as untrained.
    """
    plan = plan or Plan()
    dataset = load(data) if isinstance(data, str) else as_dataset("your data", data, "the data set")
    network = _network(model, dataset, plan.seed)
    named = model if isinstance(model, str) else type(model).__name__
    task = {"data": data if isinstance(data, str) else dataset.name, "model": named}
    own = own_code([name for name in task.values() if FUNCTION.fullmatch(name)])
    given = {"data": _digest(dataset.pool.x, dataset.pool.y), "first weights": _digest(read_vector(network))}
    origin = Origin(code=versions() | own, given=given)
    stem = f"policy-{slug(Path(task['data']).stem)}"
    folder = open_run(None if out is None else Path(out), stem, _table("search", task | asdict(plan)), origin)
    with Progress(quiet=quiet) as progress, Engine(workers, engine, say=progress.say) as running:
        if folder.news:
            progress.say(folder.news)
        outcome = search(dataset, network, plan, folder, running, progress)
    file = folder.path / "policy.toml"
    write_text(file, "\n".join(_lines(outcome, plan, dataset, task)))
    return Found(file, outcome)


def _network(model: str | nn.Module, dataset: Dataset, seed: int) -> nn.Module:
    shape, classes = dataset.train.shape, dataset.train.classes
    if isinstance(model, str):
        return seeded_model(model, shape, classes, derive(seed, "weights"))
    return checked_copy(model, shape, classes)


def _digest(*tensors: Tensor) -> str:
    digest = hashed()
    for tensor in tensors:
        digest.update(tensor.contiguous().numpy().data)
    return digest.hexdigest()


def _lines(outcome: Outcome, plan: Plan, dataset: Dataset, task: Mapping[str, str]) -> Iterator[str]:
    """The policy file: the hybrid of the best two, and where it comes from."""
    yield "# S_pri (privacy): lower is better; S_acc (accuracy): higher is better."
    yield _entries({"policy": outcome.hybrid.policy, "shape": list(dataset.train.shape)})
    yield _entries({"classes": dataset.train.classes, **task, "version": versions()["glasshouse"]}) + "\n"
    counts = {"distinct": outcome.distinct, "passed": outcome.passed}
    yield _table("search", asdict(plan) | counts | {"threshold": round(outcome.threshold, 6)})
    untransformed = {f"untransformed_{name}": value for name, value in _scores(outcome.untransformed).items()}
    yield _table("scores", _scores(outcome.hybrid) | untransformed)
    for one in outcome.ranked:
        yield _table("[ranked]", {"policy": one.policy} | _scores(one))


def _scores(one: Ranked) -> dict[str, float | None]:
    privacy, accuracy = one.privacy, one.accuracy
    values = {
        "privacy": privacy.value,
        "privacy_low": privacy.low,
        "privacy_high": privacy.high,
        "accuracy": accuracy.value,
    }
    rounded = {name: None if value is None else round(value, 6) for name, value in values.items()}
    return {**rounded, "images": privacy.n, "batches": accuracy.batches}


def _table(name: str, entries: Mapping[str, Any]) -> str:
    return f"[{name}]\n{_entries(entries)}\n"


def _entries(entries: Mapping[str, Any]) -> str:
    """Lines of TOML, whose strings, numbers and lists of them are JSON's; what is null is left out."""
    return "\n".join(f"{name} = {json.dumps(value)}" for name, value in entries.items() if value is not None)
