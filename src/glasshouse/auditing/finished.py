"""A finished model, audited as it is: nothing is trained but shadow models."""

import dataclasses
from collections.abc import Mapping
from typing import Any

import numpy as np
from torch import nn

from glasshouse.access import ModelAccess, Protocol, QueryAccess
from glasshouse.attacks import ATTACKS
from glasshouse.auditing.attacking import Assignment, assignments, attack_target
from glasshouse.auditing.battery import outcome_by_image, utility
from glasshouse.auditing.case import Case
from glasshouse.auditing.curvature import sharpness
from glasshouse.auditing.experiment import Experiment, check_names
from glasshouse.auditing.networks import news_of
from glasshouse.auditing.setting import AttackTable, DataTable, Setting
from glasshouse.auditing.shadowing import Shadowing
from glasshouse.auditing.target import Target, Variant
from glasshouse.data.duplicates import first_copies, without_copies
from glasshouse.data.parts import read_parts
from glasshouse.data.resizing import news_of_sizes, resized
from glasshouse.data.split import Split
from glasshouse.errors import BadInput
from glasshouse.evidence.truth import NOBODY
from glasshouse.exhibits import Exhibits
from glasshouse.findings import Finding
from glasshouse.learning.engine import Engine
from glasshouse.learning.evaluate import hits
from glasshouse.learning.layout import Layout, read_vector
from glasshouse.learning.seeds import derive
from glasshouse.models.freezing import freeze
from glasshouse.models.loading import checked_copy, load_weights, seeded_model
from glasshouse.progress import Progress
from glasshouse.registry import parse_spec
from glasshouse.runfolder import RunFolder

ADVERSARIES = (QueryAccess, ModelAccess)
"""Who can attack a model without its training: whoever may ask it, and whoever owns it."""


FINISHED = Variant("finished", "none")
"""What stands in for a training that nobody saw."""

EPS = "(0.01,0.02,0.05,0.1)"
"""How far evasion attacks may move a pixel: as in an audit by default."""


def finished_setting() -> Setting:
    """Every attack that needs no more than the model: those of a usual audit with their options first."""
    usual = AttackTable().attacks
    named = {parse_spec(spec, "attack")[0] for spec in usual}
    others = [assignment for assignment in assignments(ATTACKS) if assignment.spec not in named]
    more = [f"{a.spec}(eps={EPS})" if a.meets_central else a.spec for a in others]
    able = [a.spec for a in assignments([*usual, *more]) if a.access in ADVERSARIES]
    return Setting(audit=AttackTable(attacks=tuple(dict.fromkeys(able))))


def prepare_finished(setting: Setting, parts: Mapping[str, Any], model: nn.Module | None) -> Experiment:
    """Load and check a model, or take the one that is given, and the images it was trained on and not.

    `parts` are `members`, `nonmembers` and perhaps `auxiliary`. The setting's training table says how the
    model is thought to have been trained, for shadow models, which are trained in one place.
    """
    check_names(setting)
    split = _split(parts)
    pool = resized(split.pool, setting.model.image_size)
    notes = news_of_sizes(split.pool, pool)
    split = dataclasses.replace(split, pool=pool)
    name = setting.model.name
    if model is not None:
        name = type(model).__name__
        network = checked_copy(model, pool.shape, pool.classes)
    elif setting.model.weights:
        network = seeded_model(name, pool.shape, pool.classes, derive(setting.seed, "weights"))
        load_weights(network, setting.model.weights)
    else:
        raise BadInput("a finished model needs its weights; give --weights, a .safetensors or .pt file")
    freeze(network, setting.model.train)
    setting = setting.model_copy(
        update={
            "data": DataTable(name=_source(parts["members"]), clients=1),
            "model": setting.model.model_copy(update={"name": name}),
            "audit": setting.audit.model_copy(
                update={"shadow_training": "central", "central": False, "defences": ()}
            ),
        }
    )
    notes += news_of(network, None, setting.seed)
    start = read_vector(network)
    return Experiment(setting, split, network, start, True, live=model is not None, notes=tuple(notes))


def _split(parts: Mapping[str, Any]) -> Split:
    """The parts, of which an image that stands in several stays in the first alone."""
    pool, positions = read_parts(parts)
    first = first_copies(pool.x)
    kept = without_copies(positions, first)
    if not len(kept["nonmembers"]):
        raise BadInput(
            "every non-member is a member too, pixel by pixel; give images that were not trained on"
        )
    return Split(
        pool,
        (kept["members"],),
        kept["nonmembers"],
        kept.get("auxiliary", NOBODY),
        NOBODY,
        duplicates=len(first) - len(np.unique(first)),
        left_out=len(pool) - sum(map(len, kept.values())),
    )


def _source(members: Any) -> str:
    return str(members) if isinstance(members, str) else "your data"


def audit_finished(
    experiment: Experiment, folder: RunFolder, engine: Engine, progress: Progress, *, detailed: bool = True
) -> tuple[list[Finding], Exhibits]:
    """Every attack of the setting that the outsider or the owner can run; non-members are the test images."""
    target = _target(experiment)
    tried = attacks_on_finished(experiment.setting)
    shadowing = Shadowing(experiment, folder.work / "shadows", engine, progress)
    findings = [utility(target, experiment.notes), *sharpness(experiment, target, folder)]
    exhibits = Exhibits(records=(outcome_by_image(target),))
    for attacked in attack_target(
        target, tried, shadowing.under("none"), folder, engine, progress, detailed=detailed
    ):
        findings += attacked.findings
        exhibits += attacked.exhibits
    return findings, exhibits


def attacks_on_finished(setting: Setting) -> list[Assignment]:
    """The attacks of the setting that need no more than the model."""
    tried = [a for a in assignments(setting.audit.attacks) if a.access in ADVERSARIES]
    if not tried:
        raise BadInput("none of the attacks is one of the outsider or the owner; name others")
    return tried


def _target(experiment: Experiment) -> Target:
    split, model, setting = experiment.split, experiment.model.eval(), experiment.setting
    test = split.images("nonmembers")
    case = Case(
        subject=dataclasses.replace(experiment.subject("", "none"), strategy=None),
        protocol=Protocol(
            model, Layout.of(model), setting.training.recipe(), split.pool.shape, split.pool.classes
        ),
        model=model,
        truth=dataclasses.replace(experiment.truth, clients=(), test=test, test_places=split.nonmembers),
        auxiliary=experiment.auxiliary,
    )
    return Target(FINISHED, case, hits(model, test).numpy(), setting.training.rounds)
