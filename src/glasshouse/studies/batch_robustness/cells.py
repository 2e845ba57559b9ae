"""What is measured of each model: accuracy, clean and attacked, and curvature in weights and in pixels."""

import time
import zlib
from collections.abc import Iterator
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from glasshouse.access import ModelAccess
from glasshouse.attacks.attack import Knowledge
from glasshouse.attacks.evasion.fgsm import FGSM
from glasshouse.attacks.evasion.pgd import PGD
from glasshouse.data.images import Images
from glasshouse.findings import Finding, from_row, rows
from glasshouse.learning.evaluate import hits, predict
from glasshouse.learning.layout import read_vector
from glasshouse.learning.recipe import Recipe
from glasshouse.learning.seeds import torch_rng
from glasshouse.measures.curvature import input_curvature, top_eigenvalues
from glasshouse.measures.estimate import Estimate, mean, proportion
from glasshouse.store import read_json, write_json
from glasshouse.studies.batch_robustness.scales import Federated, Row, Sizes
from glasshouse.studies.batch_robustness.settings import TIME, Setting, training_time
from glasshouse.studies.batch_robustness.training import (
    Materials,
    Trained,
    materials,
    train_central,
    train_federated,
)
from glasshouse.studies.study import Workplace

EPS = {1: (0.1, 0.3), 3: (0.005, 0.02)}
"""The limits for grey and for colour images; the larger one is the paper's."""
ATTACKS = {"fgsm": FGSM, "pgd": PGD}
TOLERANCE = 3e-3
"""The relative residual at which an eigenvalue counts as found."""


def central_cell(row: Row, setting: Setting, batch: int, place: Workplace) -> list[Finding]:
    """A model trained in one place; settings that come to the same training share one model."""
    recipe = setting.recipe(batch, row.sizes.epochs, row.sizes.precision)
    rates = [recipe.lr_at(epoch, recipe.epochs) for epoch in range(recipe.epochs)]
    same = f"{row.data} {row.model} {row.sizes} {batch} {recipe.momentum} {setting.adversarial} {rates}"
    file = place.shared / "models" / f"{zlib.crc32(same.encode()):08x}-seed-{place.seed}.json"
    if not file.exists():
        write_json(file, rows(_central(row, setting, batch, place)))
    return [from_row(own) for own in read_json(file)]


def _central(row: Row, setting: Setting, batch: int, place: Workplace) -> list[Finding]:
    began = time.process_time()
    trained = train_central(row, setting, batch, place.seed)
    seconds = time.process_time() - began
    images = materials(row.data, row.sizes, place.seed)
    common = {"strategy": "central", "data": row.data, "model": row.model}
    return [
        *_examined(trained, images, row.sizes, seconds, common, place.seed),
        _time(setting.recipe(batch, row.sizes.epochs, row.sizes.precision), row.sizes.train, common),
    ]


def federated_cell(
    row: Federated, setting: Setting, division: str, clients: int, place: Workplace
) -> list[Finding]:
    """A model trained by FedAvg."""
    began = time.process_time()
    trained = train_federated(row, setting, division, clients, place.engine, place.seed)
    seconds = time.process_time() - began
    images = materials(row.data, row.sizes, place.seed)
    common = {"strategy": "fedavg", "data": row.data, "model": row.model}
    return _examined(trained, images, row.sizes, seconds, common, place.seed)


def attack_name(attack: str, eps: float) -> str:
    """How a finding calls an attack with its limit."""
    return f"{attack}(eps={eps:g})"


def _examined(
    trained: Trained, images: Materials, sizes: Sizes, seconds: float, common: dict[str, Any], seed: int
) -> list[Finding]:
    """Everything measured; `seconds` are those of the training, on one core."""
    common = common | {"source": "", "cell": "", "assumes": trained.assumes}
    if _diverged(trained, images.curved):
        reason = (*trained.assumes, "not estimable: the training diverged")
        common |= {"assumes": reason, "n": len(images.train), "seconds": seconds}
        return [Finding(**common, family="utility", metric="test-accuracy", value=None)]
    return [
        *_accuracies(trained, images, seconds, common),
        *_attacked(trained, images.test[: sizes.attacked], common, seed),
        *_curvature(trained, images, sizes, common, seed),
    ]


def _diverged(trained: Trained, images: Images) -> bool:
    """Whether weights, answers or losses have left the numbers that float32 can hold."""
    if not torch.isfinite(read_vector(trained.model)).all():
        return True
    losses = F.cross_entropy(predict(trained.model, images.x), images.y, reduction="none")
    return not torch.isfinite(losses).all()


def _accuracies(
    trained: Trained, images: Materials, seconds: float, common: dict[str, Any]
) -> Iterator[Finding]:
    logits = predict(trained.model, images.train.x)
    losses = F.cross_entropy(logits, images.train.y, reduction="none")
    shares = {
        "test-accuracy": (hits(trained.model, images.test), images.test),
        "train-accuracy": (logits.argmax(1) == images.train.y, images.train),
    }
    for metric, (right, own) in shares.items():
        majority = own.label_counts().max().item() / len(own)
        entries = _entries(proportion(int(right.sum()), len(right)), metric, common)
        yield Finding(**entries | {"chance": majority, "seconds": seconds}, family="utility")
    yield Finding(**_entries(mean(losses.double().tolist()), "train-loss", common), family="utility")


def _attacked(trained: Trained, images: Images, common: dict[str, Any], seed: int) -> Iterator[Finding]:
    """Robust accuracy under each attack and limit; the blind guess is noise of the same size."""
    limits = EPS[images.shape[0]]
    shaken = dict(zip(limits, _shaken(images, limits, torch_rng(seed, "noise"))))
    common = common | {"adversary": ModelAccess.adversary, "family": "evasion"}
    for name, attack in ATTACKS.items():
        began = time.process_time()
        rng = torch_rng(seed, "attack", name)
        evidence = attack(eps=limits).run(ModelAccess(trained.model), Knowledge(candidates=images), rng)
        seconds = time.process_time() - began
        for eps, x in zip(limits, evidence.x):
            estimate = _share(trained, x, images.y)
            entries = _entries(estimate, "robust-accuracy", common)
            chance = _share(trained, shaken[eps], images.y).value
            yield Finding(
                **entries | {"attack": attack_name(name, eps), "chance": chance, "seconds": seconds}
            )


def _curvature(
    trained: Trained, images: Materials, sizes: Sizes, common: dict[str, Any], seed: int
) -> Iterator[Finding]:
    common = common | {"family": "curvature"}
    began = time.process_time()
    top = top_eigenvalues(trained.model, images.curved, tolerance=TOLERANCE, seed=seed)
    seconds = time.process_time() - began
    yield Finding(**_entries(top.estimate, "top-eigenvalue", common) | {"seconds": seconds})
    yield Finding(
        **_entries(Estimate(top.residual, None, None, len(images.curved)), "eigenvalue-residual", common)
    )
    yield Finding(
        **_entries(Estimate(top.products, None, None, len(images.curved)), "hessian-products", common)
    )
    each = input_curvature(trained.model, images.test[: sizes.probed], seed=seed)
    yield Finding(**_entries(mean(each.tolist(), bounds=(0.0, float("inf"))), "input-eigenvalue", common))


def _time(recipe: Recipe, images: int, common: dict[str, Any]) -> Finding:
    """How far the training went; n counts its steps."""
    return Finding(
        **common,
        source="",
        cell="",
        family="utility",
        metric=TIME,
        value=training_time(recipe, images),
        n=recipe.total_steps(images),
    )


def _entries(estimate: Estimate, metric: str, common: dict[str, Any]) -> dict[str, Any]:
    noted = (*common["assumes"], estimate.note) if estimate.note else common["assumes"]
    return common | estimate.entries() | {"metric": metric, "assumes": noted}


def _shaken(images: Images, limits: tuple[float, ...], rng: torch.Generator) -> list[Tensor]:
    signs = torch.randint(0, 2, images.x.shape, generator=rng) * 2.0 - 1
    return [(images.x + eps * signs).clamp(0, 1) for eps in limits]


def _share(trained: Trained, x: Tensor, y: Tensor) -> Estimate:
    right = predict(trained.model, x).argmax(1) == y
    return proportion(int(right.sum()), len(right))
