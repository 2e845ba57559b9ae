"""A recorded update as a case: what a curious server would have of it, and the truth where it is known."""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import nn

from glasshouse.access import Protocol
from glasshouse.auditing.case import Case
from glasshouse.auditing.inspecting.mode import MODES
from glasshouse.auditing.inspecting.reading import Reading, Told, read_update
from glasshouse.auditing.inspecting.recorded import KINDS, read_recorded, told_kind
from glasshouse.data.dataset import unit_pixels
from glasshouse.data.images import Images, checked
from glasshouse.data.parts import read_pair
from glasshouse.errors import BadInput
from glasshouse.evidence.truth import Truth
from glasshouse.federation.history import Observed
from glasshouse.federation.updates import Delivery, Update
from glasshouse.findings import Subject
from glasshouse.learning.recipe import Recipe
from glasshouse.models.freezing import freeze
from glasshouse.models.loading import checked_copy, load_model
from glasshouse.models.shapes import Shape, check_classes, check_shape
from glasshouse.registry import unknown


@dataclass(frozen=True, eq=False)
class Inspected:
    """A case of one client and one round, and how the update was read."""

    case: Case
    reading: Reading


def make_case(
    update: Path,
    before: Path,
    model: str | nn.Module,
    shape: Shape,
    classes: int,
    told: Told,
    *,
    parts: Mapping[str, Any],
    seed: int,
) -> Inspected:
    """Read and check the files; `parts` may be the `truth`, the images behind it, and `auxiliary` images."""
    _check_told(told)
    check_shape(shape)
    check_classes(classes)
    named = model if isinstance(model, str) else type(model).__name__
    network = (
        load_model(model, shape, classes) if isinstance(model, str) else checked_copy(model, shape, classes)
    )
    freeze(network)
    images = {name: _images(name, source, shape, classes) for name, source in parts.items()}
    recorded = read_recorded(network, before, update)
    protocol = Protocol(network, recorded.layout, Recipe(batch_size=0), shape, classes)
    kinds, why = told_kind(recorded, told.kind, update, before)
    reading = read_update(recorded, protocol, kinds, told, why)
    truth = images.get("truth")
    if truth is not None and told.samples not in (None, len(truth)):
        raise BadInput(
            f"--samples {told.samples}, but --truth holds {len(truth)} images; leave --samples out"
        )
    return Inspected(
        Case(
            subject=Subject(data=update.name, model=named, seed=seed),
            protocol=Protocol(network, recorded.layout, reading.recipe, shape, classes),
            rounds=(_round(recorded.sent, reading),),
            sizes=(reading.samples,),
            truth=None if truth is None else Truth(truth, (np.arange(len(truth)),)),
            auxiliary=images.get("auxiliary"),
        ),
        reading,
    )


def _round(sent: torch.Tensor, reading: Reading) -> Observed:
    update = Update(0, reading.samples, reading.delta)
    return Observed(0, sent, Delivery(reading.delta, reading.samples, (0,), (update,)))


def _check_told(told: Told) -> None:
    if told.kind not in ("auto", *KINDS):
        raise BadInput(unknown("kind", told.kind, ("auto", *KINDS)))
    if told.mode not in ("auto", *MODES):
        raise BadInput(unknown("mode", told.mode, ("auto", *MODES)))
    for option, least in (("samples", 1), ("epochs", 1), ("batch_size", 1)):
        value = getattr(told, option)
        if value is not None and value < least:
            raise BadInput(f"{option} = {value} is out of range; it must be at least {least}")
    if told.lr is not None and not 0 < told.lr < float("inf"):
        raise BadInput(f"lr = {told.lr} is out of range; it must be above 0")


def _images(name: str, source: Any, shape: Shape, classes: int) -> Images:
    x, y = read_pair(name, source)
    labels = torch.from_numpy(np.ascontiguousarray(y, dtype=np.int64))
    images = checked(Images(unit_pixels([x]), labels, classes), f"the {name}", every_class=False)
    if images.shape != shape:
        raise BadInput(f"the {name}: images of shape {images.shape}, not {shape}; give those the model takes")
    return images
