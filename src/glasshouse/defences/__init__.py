"""Defences, by the names users type."""

import re
from typing import TYPE_CHECKING

from glasshouse.registry import Registry, check_length, parse_spec, write_spec

if TYPE_CHECKING:
    from glasshouse.defences.defence import Stack
    from glasshouse.defences.promise import Conditions

DEFENCES = Registry(
    "defence",
    {
        "gaussian-noise": "glasshouse.defences.perturbation:GaussianNoise",
        "laplacian-noise": "glasshouse.defences.perturbation:LaplacianNoise",
        "pruning": "glasshouse.defences.perturbation:Pruning",
        "clipping": "glasshouse.defences.perturbation:Clipping",
        "adversarial-training": "glasshouse.defences.hardening:AdversarialTraining",
        "vet": "glasshouse.defences.vet:Vet",
        "transformation-policy": "glasshouse.defences.policies.defence:TransformationPolicy",
        "differential-privacy": "glasshouse.defences.privacy:DifferentialPrivacy",
        "dp-sgd": "glasshouse.defences.private_sgd:PrivateSGD",
        "secure-aggregation": "glasshouse.defences.aggregation:SecureAggregation",
        "larger-batches": "glasshouse.defences.training:LargerBatches",
        "more-local-steps": "glasshouse.defences.training:MoreLocalSteps",
        "early-stopping": "glasshouse.defences.training:EarlyStopping",
        "mix-up": "glasshouse.defences.training:MixUp",
        "label-smoothing": "glasshouse.defences.training:LabelSmoothing",
        "weight-decay": "glasshouse.defences.training:WeightDecay",
    },
    base="glasshouse.defences.defence:Defence",
)


def make_defences(spec: str) -> "Stack":
    """Defences from `none`, `pruning(fraction=0.95)` or `clipping(norm=1.0)+gaussian-noise(std=0.01)`."""
    from glasshouse.defences.defence import Stack

    return Stack([DEFENCES.make(part) for part in split_defences(spec)], spec.strip())


def settled_spec(spec: str, conditions: "Conditions") -> str:
    """The same defences with the noise that they solve for under `conditions`, in place of their target."""
    return "+".join(_with_noise(part, conditions) for part in split_defences(spec)) or "none"


def _with_noise(part: str, conditions: "Conditions") -> str:
    name, options = parse_spec(part, DEFENCES.kind)
    if options.get("target_epsilon") is None:
        return part
    solved = getattr(DEFENCES.make(part).settled(conditions), "noise", None)
    kept = {option: value for option, value in options.items() if option != "target_epsilon"}
    return write_spec(name, kept | ({} if solved is None else {"noise": solved}))


def split_defences(spec: str) -> list[str]:
    """The parts of a composition; a plus sign inside brackets belongs to a number, as in `1e+5`."""
    check_length(spec, DEFENCES.kind)
    return [] if spec.strip() == "none" else [part.strip() for part in re.split(r"\+(?![^(]*\))", spec)]
