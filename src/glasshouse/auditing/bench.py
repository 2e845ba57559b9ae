"""From a setting to the things it names: data divided among clients, a network and its first weights."""

import hashlib
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from glasshouse.attacks import ATTACKS
from glasshouse.auditing.setting import Setting, as_toml
from glasshouse.data.dataset import Dataset
from glasshouse.data.sources import load
from glasshouse.data.split import Split, split
from glasshouse.defences import make_defences
from glasshouse.federation.strategies import STRATEGIES
from glasshouse.findings import Finding
from glasshouse.learning.layout import read_vector
from glasshouse.learning.seeds import derive
from glasshouse.models.loading import load_model, load_weights


@dataclass(frozen=True, eq=False)
class Bench:
    """What an audit works on; `start` is the state its training begins with, shape (P,)."""

    setting: Setting
    split: Split
    model: nn.Module
    start: Tensor

    def finding(self, **entries: Any) -> Finding:
        """A finding of this audit."""
        setting = self.setting
        common: dict[str, Any] = {
            "source": "audit",
            "strategy": setting.training.strategy,
            "data": setting.data.name,
            "model": setting.model.name,
            "seed": setting.seed,
        }
        return Finding(**common | entries)

    def config(self) -> str:
        """The configuration as TOML, with fingerprints of the data and of the weights at the start."""
        data = fingerprint(self.split.pool.x, self.split.pool.y)
        return f"# data {data}, start {fingerprint(self.start)}\n{as_toml(self.setting)}"


def prepare(setting: Setting, dataset: Dataset | None = None, model: nn.Module | None = None) -> Bench:
    """Load and check everything that `setting` names; objects given directly stand in for their names."""
    check_names(setting)
    data = dataset or load(setting.data.name)
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(derive(setting.seed, "weights"))
        network = model or load_model(setting.model.name, data.train.shape, data.train.classes)
    if setting.model.weights:
        load_weights(network, setting.model.weights)
    if dataset is not None or model is not None:
        setting = _renamed(setting, dataset, model)
    holders = split(
        data,
        clients=setting.data.clients,
        partition=setting.data.partition,
        members=setting.data.members,
        nonmembers=setting.data.nonmembers,
        auxiliary=setting.data.auxiliary,
        test=setting.data.test,
        seed=derive(setting.seed, "split"),
    )
    return Bench(setting, holders, network, read_vector(network))


def check_names(setting: Setting) -> None:
    """Refuse unknown strategies, attacks, defences and numbers before any work is done."""
    STRATEGIES.make(setting.training.strategy)
    setting.training.recipe()
    for attack in setting.audit.attacks:
        ATTACKS.make(attack)
    for defence in setting.audit.defences:
        make_defences(defence)


def fingerprint(*tensors: Tensor) -> str:
    """A short digest of the tensors' bytes."""
    digest = hashlib.blake2b(digest_size=8)
    for tensor in tensors:
        digest.update(tensor.contiguous().numpy().data)
    return digest.hexdigest()


def _renamed(setting: Setting, dataset: Dataset | None, model: nn.Module | None) -> Setting:
    """The setting with the names of the objects that stand in."""
    changes: dict[str, Any] = {}
    if dataset is not None:
        changes["data"] = setting.data.model_copy(update={"name": dataset.name})
    if model is not None:
        changes["model"] = setting.model.model_copy(update={"name": type(model).__name__})
    return setting.model_copy(update=changes)
