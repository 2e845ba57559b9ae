"""What a user could hand over, right and wrong: configurations, specs, weights, data and results."""

import inspect
import io
import json
import os
import pickle

import numpy as np
import torch
from fuzzing import (
    CANARY,
    DAMAGES,
    DATES,
    NESTED,
    NUMBERS,
    TEXTS,
    configuration,
    json_with,
    literals,
    written,
)
from hypothesis import strategies as st
from safetensors.torch import save

from glasshouse.auditing.setting import Setting
from glasshouse.listing import REGISTRIES
from glasshouse.models import build

SMALL = {
    "data": {"clients": 2, "members": 20, "nonmembers": 20, "auxiliary": 30, "test": 20},
    "model": {"name": "mlp"},
    "training": {"rounds": 2, "batch_size": 10, "lr": 0.1, "local_test": 20, "strategy": "scaffold"},
    "audit": {
        "attacks": ["loss-threshold", "lira", "label-counts"],
        "defences": ["clipping(norm=1.0)"],
        "shadows": 4,
        "observe": 1,
        "central": False,
        "curvature": 20,
    },
}

HOSTILE = [
    f"os:system(command='touch {CANARY}')",
    f"subprocess:run(args=['touch', '{CANARY}'])",
    f"builtins:open(file='{CANARY}', mode='w')",
    f"numpy:savetxt(fname='{CANARY}', X=[1])",
    f"joblib:dump(value=1, filename='{CANARY}')",
    f"torch:save(obj=1, f='{CANARY}')",
    f"glasshouse.store:write_text(path='{CANARY}', text='')",
    "lab:touch",
    "lab:touch(path=1)",
    "lab:Toucher()",
    "lab:Toucher.make",
    "lab:absent",
    "os:abort",
    "sys:exit(code=0)",
    "__main__:x",
]
LAB = f"""
from pathlib import Path

def touch(*_, **__):
    Path({CANARY!r}).touch()

class Toucher:
    def __init__(self, *_, **__):
        touch()
    __init_subclass__ = make = classmethod(touch)
"""
"""A user's module none of whose names is of any family."""


@st.composite
def specs(draw: st.DrawFn, kind: str) -> str:
    """A name of a registry, perhaps with some of its options and odd values for them, or something else."""
    registry = REGISTRIES[kind]
    if draw(st.integers(0, 5)) == 0:
        return draw(st.sampled_from(HOSTILE) | TEXTS)
    name = draw(st.sampled_from(sorted(registry)))
    known = [*inspect.signature(registry.load(name)).parameters] if registry.base else []
    options = draw(st.lists(st.sampled_from([*known, "absent"]), max_size=2, unique=True))
    values = st.one_of(literals(), NUMBERS).map(written)
    spec = f"{name}({', '.join(f'{option}={draw(values)}' for option in options)})" if options else name
    if draw(st.integers(0, 4)) == 0:
        spec = draw(DAMAGES)(spec.encode()).decode(errors="replace")
    return spec


OF_A_KIND = st.sampled_from(["attacks", "defences", "strategies", "channels", "models", "data", "studies"])


NAMES = st.from_regex(r"[a-z]+(-[a-z]+)*", fullmatch=True)
READABLE = st.tuples(
    NAMES, st.dictionaries(st.from_regex(r"[a-z]{2}_[0-9]", fullmatch=True), literals(), max_size=3)
)
SPELLED = OF_A_KIND.flatmap(
    lambda kind: st.tuples(st.just(kind), specs(kind), READABLE).map(lambda drawn: (*drawn[:2], *drawn[2]))
)


def chosen(kind):
    return specs(kind) | st.sampled_from(HOSTILE)


KEYS = [
    (name, key)
    for name, field in Setting.model_fields.items()
    for key in getattr(field.annotation, "model_fields", {"": None})
]
SPECS = {
    ("audit", "attacks"): st.lists(chosen("attacks"), max_size=3),
    ("audit", "defences"): st.lists(st.lists(chosen("defences"), max_size=3).map("+".join), max_size=3),
    ("training", "strategy"): chosen("strategies"),
    ("training", "channel"): chosen("channels"),
    ("model", "name"): st.sampled_from([*REGISTRIES["models"], "os:abort", "sys:exit", "lab:absent"]) | TEXTS,
    ("data", "name"): st.sampled_from(["digits", "os:abort", "sys:exit", "lab:absent", "given.toml"]) | TEXTS,
    ("data", "partition"): st.sampled_from(["shards(per_client=2)", "dirichlet(alpha=0)", *HOSTILE]) | TEXTS,
}


@st.composite
def tables(draw):
    """The tables of a small configuration with something else in a few places."""
    changed = {name: dict(table) for name, table in SMALL.items()}
    for name, key in draw(st.lists(st.sampled_from(KEYS), min_size=1, max_size=3)):
        value = draw(st.one_of(SPECS.get((name, key), NUMBERS), NUMBERS, NESTED, DATES))
        if key:
            changed[name][key] = value
        else:
            changed[name] = value
    if draw(st.integers(0, 5)) == 0:
        changed[draw(TEXTS)] = draw(NESTED)
    return changed


@st.composite
def configurations(draw):
    content = configuration(draw(tables())).encode()
    return draw(DAMAGES)(content) if draw(st.integers(0, 3)) == 0 else content


FAST = [
    *("loss-threshold", "gap", "lira", "rmia", "set-loss", "label-counts", "source-inference", "shokri"),
    *("loss-trajectory", "lira-online", "saturated-head", "fgsm(eps=(0.1,1e-9))"),
]
DEFENDED = [
    *("clipping(norm=1e-30)", "gaussian-noise(std=1e30)", "pruning(fraction=0.999)", "vet"),
    *("differential-privacy", "clipping(norm=1.0)+laplacian-noise(scale=1.0)"),
]
CHANNELS = ["plain", "plain(dropout=0.9)", "secure", "secure(neighbours=2)", "ideal"]
QUICK = {
    "data": {
        "clients": st.integers(0, 6),
        "members": st.integers(1, 40),
        "nonmembers": st.none() | st.integers(0, 40),
        "auxiliary": st.integers(0, 40),
        "test": st.integers(1, 40),
        "partition": st.sampled_from(["iid", "shards", "dirichlet(alpha=0.1)", "dirichlet(alpha=1e-9)"]),
    },
    "training": {
        "strategy": st.sampled_from(sorted({*REGISTRIES["strategies"]} - {"fedgen", "feddf", "fed-fsnet"})),
        "channel": st.sampled_from(CHANNELS),
        "rounds": st.integers(1, 2),
        "fraction": st.sampled_from([1e-9, 0.3, 1.0]),
        "target_accuracy": st.sampled_from([1e-9, 0.5, 1.0]),
        "local_test": st.integers(0, 30),
        "batch_size": st.integers(0, 50),
        "optimiser": st.sampled_from(["sgd", "adam", "adamw", "rmsprop"]),
        "lr": st.sampled_from([5e-324, 0.1, 1e4, 1e38, 1e308]),
        "momentum": st.sampled_from([0.0, 0.9, 1 - 2**-53]),
        "weight_decay": st.sampled_from([0.0, 1.0, 1e308]),
        "schedule": st.sampled_from(["constant", "cosine", "halving", "steps"]),
        "schedule_over": st.sampled_from(["rounds", "epochs"]),
        "warmup": st.integers(0, 2),
        "clip_grad_norm": st.sampled_from([5e-324, 1.0, 1e308]),
        "label_smoothing": st.sampled_from([0.1, 1 - 2**-53]),
        "mix_up": st.sampled_from([1e-300, 1.0, 1e308]),
        "augment": st.sampled_from(["crop(pad=1000)+flip", "rotation(degrees=180)", "jitter(contrast=1.0)"]),
        "precision": st.sampled_from(["float32", "bfloat16"]),
        "mode": st.sampled_from(["train", "eval"]),
    },
    "audit": {
        "attacks": st.lists(st.sampled_from(FAST), max_size=2),
        "defences": st.lists(st.sampled_from(DEFENDED), max_size=1),
        "observe": st.integers(1, 3),
        "central": st.booleans(),
        "curvature": st.sampled_from([0, 1, 10]),
        "shadows": st.integers(0, 3),
        "shadow_training": st.sampled_from(["like-target", "central"]),
        "adaptive": st.booleans(),
    },
}


@st.composite
def extremes(draw):
    """A small configuration that may be run, with a few values at the ends of what is allowed."""
    changed = {name: dict(table) for name, table in SMALL.items()}
    places = [(name, key) for name, table in QUICK.items() for key in table]
    for name, key in draw(st.lists(st.sampled_from(places), min_size=1, max_size=6)):
        value = draw(QUICK[name][key])
        changed[name] = changed[name] | ({} if value is None else {key: value})
    return changed


class Exploit:
    """What a hostile pickle does when it is loaded."""

    def __reduce__(self):
        return os.mkdir, (CANARY,)


def saved(value):
    file = io.BytesIO()
    torch.save(value, file)
    return file.getvalue()


HONEST = build("mlp", (1, 8, 8), 4).state_dict()
TENSORS = st.builds(
    lambda shape, dtype, value: torch.full(shape, value).to(dtype),
    st.lists(st.integers(0, 3), max_size=3),
    st.sampled_from([torch.float32, torch.float16, torch.bfloat16, torch.int64, torch.bool, torch.complex64]),
    st.sampled_from([0.0, 1.0, float("nan"), float("inf"), -1e30]),
)
STATES = st.dictionaries(st.sampled_from([*HONEST, "", "a.b"]), TENSORS, max_size=2).map(
    lambda others: HONEST | others
)
HELD = st.one_of(STATES, st.just(HONEST), st.just(Exploit()), st.builds(lambda: HONEST | {"x": Exploit()}))


@st.composite
def weights(draw):
    """The suffix and the content of a file of weights."""
    suffix = draw(st.sampled_from(["safetensors", "pt", "pt"]))
    if suffix == "safetensors":
        content = save(draw(STATES))
    else:
        value = draw(HELD)
        content = draw(st.sampled_from([saved, pickle.dumps]))(value)
    return suffix, draw(DAMAGES)(content) if draw(st.booleans()) else content


ARRAYS = st.dictionaries(
    st.sampled_from(["x", "y", "x_test", "y_test", "user"]),
    st.builds(
        lambda shape, dtype, value: np.full(shape, value, dtype),
        st.lists(st.integers(0, 9), max_size=4),
        st.sampled_from(["u1", "i8", "f2", "f4", "f8", "c8", "?", "S3", "U2", "u8", "O"]),
        st.sampled_from([0, 1, 255]),
    ),
    max_size=2,
)


@st.composite
def archives(draw):
    rng = np.random.default_rng(0)
    images = {"x": rng.integers(0, 256, (80, 8, 8, 1), dtype=np.uint8), "y": np.arange(80) % 4}
    file = io.BytesIO()
    draw(st.sampled_from([np.savez, np.savez_compressed]))(file, **images | draw(ARRAYS))
    return draw(DAMAGES)(file.getvalue()) if draw(st.booleans()) else file.getvalue()


FEDERATION = {
    "format": "glasshouse-record",
    "version": 1,
    "model": {"name": "mlp", "shape": [1, 8, 8], "classes": 4},
    "recipe": {"epochs": 1, "batch_size": 10, "optimiser": "adam", "lr": 0.1, "betas": [0.9, 0.99]},
    "channel": "plain",
    "described": "nothing",
    "strategy": "fedavg",
    "seed": 0,
    "framework": {"name": "mine", "version": "1"},
    "versions": {"python": "3"},
}
ROUND = {
    "round": 1,
    "follows": None,
    "kind": "after",
    "sent": "sent.safetensors",
    "clients": [
        {"name": "a", "samples": 3, "file": "update-0000.safetensors"},
        {"name": "b", "samples": 5, "file": None},
    ],
    "sum": {"file": "sum.safetensors", "samples": 8},
}
RECORD = {
    "federation.json": json.dumps(FEDERATION).encode(),
    "rounds/0001/round.json": json.dumps(ROUND).encode(),
    **{
        f"{name}.safetensors": save(HONEST)
        for name in ("rounds/0001/sent", "rounds/0001/update-0000", "rounds/0001/sum", "final")
    },
}
"""The files of a sound record."""


@st.composite
def records(draw):
    """One of the files of a record, and another content of it."""
    name = draw(st.sampled_from([*RECORD]))
    if name.endswith(".json"):
        whole = FEDERATION if name == "federation.json" else ROUND
        content = draw(json_with(whole)).encode()
    else:
        content = draw(st.builds(save, STATES) | st.builds(pickle.dumps, HELD))
    return name, draw(DAMAGES)(content) if draw(st.integers(0, 3)) == 0 else content
