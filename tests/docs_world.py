"""A folder in which everything that the documentation shows can be run, and work made small enough for it.

Files, modules and runs that the pages speak of are there. Audits, inspections, studies and searches are the
real ones, with few images, one round and few attacks.
"""

import contextlib
import io
import json
import os
import re
import runpy
import shlex
import shutil
import sys
from collections.abc import Callable, Iterator
from dataclasses import replace
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any

import numpy as np
import torch
from conftest import make_images, make_plain_model, make_split
from PIL import Image
from safetensors.torch import save_file

import glasshouse
from glasshouse import api, cli
from glasshouse.auditing.setting import Setting, make_setting
from glasshouse.data.dataset import Dataset
from glasshouse.data.images import Images
from glasshouse.data.registry import DATA
from glasshouse.defences.policies.policy import parse_policy
from glasshouse.learning.engine import Engine
from glasshouse.learning.recipe import Recipe
from glasshouse.models import build
from glasshouse.reading import parse_toml
from glasshouse.studies import STUDIES
from glasshouse.studies.own_attack import check_attack
from glasshouse.verdicts.limits import read_limits

ROOT = Path(__file__).parent.parent
FOREIGN = ("make ", "pip ", "python3 -m venv", ".venv/bin/pip", "python -m pip")
"""Commands that set something up: what they do is tested by whoever sets it up."""

MODULES = {
    "my_models": """
from torch import nn

class Network(nn.Module):
    def __init__(self, shape=(1, 8, 8), classes=4):
        super().__init__()
        pixels = shape[0] * shape[1] * shape[2]
        self.layers = nn.Sequential(nn.Flatten(), nn.Linear(pixels, 16), nn.ReLU(), nn.Linear(16, classes))

    def forward(self, x):
        return self.layers(x)
""",
    "my_lab": """
from dataclasses import dataclass

from glasshouse.attacks.evasion.pgd import PGD
from glasshouse.attacks.membership.threshold import LossThreshold
from glasshouse.defences.perturbation import GaussianNoise
from glasshouse.federation.strategies.stepping import FedAvgM

@dataclass(frozen=True, kw_only=True)
class MyAttack(LossThreshold):
    steps: int = 1

@dataclass(frozen=True, kw_only=True)
class MyEvasion(PGD):
    pass

class MyNoise(GaussianNoise):
    pass

class MyDefence(GaussianNoise):
    pass

class Momentum(FedAvgM):
    def __init__(self, *, beta: float = 0.9) -> None:
        super().__init__(momentum=beta)
""",
}


def miniature(setting: Setting) -> Setting:
    """The setting with one round, few images and the first of its attacks and defences."""
    named = [spec for spec in setting.audit.attacks if ":" in spec]
    data = {"members": 60, "nonmembers": 20, "auxiliary": 20, "test": 20}
    if setting.data.clients:
        data["clients"] = min(3, setting.data.clients)
    audit = {
        "attacks": tuple(dict.fromkeys(["loss-threshold", "gap", *named])),
        "defences": tuple(one for one in setting.audit.defences if one != "all")[-1:],
        "central": False,
        "curvature": 0,
        "shadows": 0,
        "adaptive": False,
        "ladder": False,
        "observe": 1,
    }
    return setting.model_copy(
        update={
            "data": setting.data.model_copy(update=data),
            "training": setting.training.model_copy(update={"rounds": 1, "epochs": 1, "fraction": 1.0}),
            "audit": setting.audit.model_copy(update=audit),
        }
    )


class World:
    """The folder, and the names that the snippets of a page share."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        _furnish(folder)
        self.results = glasshouse.audit(
            miniature(Setting()), out=folder / "runs/audit-digits-1", workers=1, quiet=True
        )
        for name in ("before", "after"):
            shutil.copytree(folder / "runs/audit-digits-1", folder / "runs" / name)

    def names(self) -> dict[str, Any]:
        """What a page may speak of without having made it."""
        images = make_images(8)
        split = make_split()
        return {
            "__name__": "snippet",
            "images": images,
            "labels": np.arange(60) % 3,
            "owners": np.arange(60) % 6,
            "model": make_plain_model().eval(),
            "split": split,
            "recipe": Recipe(batch_size=10),
            "engine": Engine(1),
            "results": self.results,
        }


def run_line(line: str) -> None:
    """Run one line of a shell as it stands there."""
    for words in _commands(line):
        if words[0] == "python":
            with contextlib.redirect_stdout(io.StringIO()):
                runpy.run_path(words[1], run_name="__main__")
        else:
            assert Path(words[0]).name == "glasshouse", f"nobody knows how to run {line!r}"
            _run_command(words[1:])


def _commands(line: str) -> Iterator[list[str]]:
    words = shlex.split(line, comments=True)
    while "&&" in words:
        place = words.index("&&")
        yield words[:place]
        words = words[place + 1 :]
    if words:
        yield words


def _run_command(words: list[str]) -> None:
    """One command, in this process; a verdict may go either way, everything else has to succeed."""
    before, sys.argv = sys.argv, ["glasshouse", *words]
    out, err, code = io.StringIO(), io.StringIO(), 0
    try:
        with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
            cli.main()
    except SystemExit as stopped:
        code = stopped.code or 0
    finally:
        sys.argv = before
    verdicts = (0, 1) if words[0] in ("gate", "vet") else (0,)
    assert code in verdicts, f"{shlex.join(words)}: exit code {code}\n{out.getvalue()}{err.getvalue()}"


def configured(text: str, name: str | None) -> None:
    """Read a piece of TOML as what it is, and leave it under the name that the page gives it."""
    values = parse_toml(text)
    if "policy" in values:
        parse_policy(values["policy"])
    elif {"data", "model", "training", "audit", "seed"} & values.keys():
        setting = make_setting(values)
        read_limits(setting.audit.limits)
    else:
        read_limits(values)
    if name:
        Path(name).write_text(text)


def shrunk(monkeypatch: Any) -> None:
    """Audits, studies and searches take a moment, and named sets are made up."""
    real_audit, real_study, real_search = api.run_audit, api.run_study, api.run_search
    real_inspection, real_record = api.run_inspection, api.run_record

    def audit(setting: Setting, **options: Any) -> Any:
        return real_audit(miniature(setting), **{**options, "quiet": True, "workers": 1})

    def record(folder: Path, setting: Setting | None = None, **options: Any) -> Any:
        few = miniature(setting or Setting())
        return real_record(folder, few, **{**options, "quiet": True, "workers": 1})

    def study(name: str, *, attack: str | None = None, **options: Any) -> Any:
        if attack is not None:
            check_attack(STUDIES.make(name), attack)
        grid = STUDIES.make(name).cells(options.get("scale", "smoke"))
        assert any(fnmatchcase(cell.name, options.get("cells", "*")) for cell in grid)
        small = {"scale": "smoke", "cells": "clients-1", "seeds": 1, "quiet": True, "workers": 1}
        return real_study("clients", **{**options, **small})

    def search(data: Any, model: Any, plan: Any, **options: Any) -> Any:
        few = replace(plan, candidates=6, keep=2, images=4)
        return real_search("digits", "mlp", few, **{**options, "quiet": True, "workers": 1})

    def inspection(*what: Any, **options: Any) -> Any:
        return real_inspection(*what, **{**options, "seconds": 0.2, "quiet": True, "workers": 1})

    # Drawing takes longer than so little work, and pages have tests of their own.
    monkeypatch.setattr(api, "write_report", lambda folder: (folder / "report.html").write_text(""))
    monkeypatch.setattr(api, "run_audit", audit)
    monkeypatch.setattr(api, "run_inspection", inspection)
    monkeypatch.setattr(api, "run_record", record)
    monkeypatch.setattr(api, "run_study", study)
    monkeypatch.setattr(api, "run_search", search)
    for name in ("mnist", "fashion-mnist", "cifar10", "cifar100"):
        monkeypatch.setitem(DATA.places, name, f"docs_world:{'colour' if 'cifar' in name else 'grey'}")


def grey() -> Dataset:
    """Images of 28x28 grey pixels."""
    return _made((1, 28, 28))


def colour() -> Dataset:
    """Images of 32x32 pixels in colour."""
    return _made((3, 32, 32))


def _made(shape: tuple[int, ...]) -> Dataset:
    rng = torch.Generator().manual_seed(0)
    train, test = (
        Images(torch.rand(count, *shape, generator=rng), torch.arange(count) % 10, 10) for count in (200, 60)
    )
    return Dataset("made", train, test)


def _furnish(folder: Path) -> None:
    rng = np.random.default_rng(0)
    for name, text in MODULES.items():
        (folder / f"{name}.py").write_text(text)
    for script in (ROOT / "examples").glob("*.py"):
        (folder / script.name).write_text(script.read_text())
    x, y = rng.random((300, 8, 8)), np.arange(300) % 4
    np.savez(folder / "pets.npz", x=x, y=y)
    for part, name in enumerate("abc"):
        np.savez(folder / f"{name}.npz", x=x[part * 100 :][:100], y=y[:100])
    sys.path.insert(0, str(folder))
    import my_models

    for name in ("w.safetensors", "model.safetensors"):
        save_file(my_models.Network().state_dict(), folder / name)
    sent = my_models.Network((1, 28, 28), 10)
    save_file(sent.state_dict(), folder / "sent.safetensors")
    torch.nn.functional.cross_entropy(sent(torch.rand(2, 1, 28, 28)), torch.tensor([1, 2])).backward()
    save_file({name: entry.grad for name, entry in sent.named_parameters()}, folder / "update.safetensors")
    save_file(build("cnn", (3, 32, 32), 10).state_dict(), folder / "received.safetensors")
    _checkpoint(folder / "checkpoints", my_models.Network)
    (folder / "limits.toml").write_text('everyone = "severe"\n')
    for place, kinds, count, shape in (("photos", 2, 80, (8, 8)), ("my-images", 10, 4, (32, 32, 3))):
        for kind in range(kinds):
            (folder / place / f"kind-{kind}").mkdir(parents=True)
            for number in range(count):
                pixels = rng.integers(0, 256, shape, dtype=np.uint8)
                Image.fromarray(pixels).save(folder / place / f"kind-{kind}" / f"{number}.png")


def _checkpoint(folder: Path, network: Any) -> None:
    """What a server of somebody's kept of two rounds, and what came of them."""
    folder.mkdir()
    for name in (
        "round-1",
        "round-2",
        "round-1-aare",
        "round-1-birs",
        "round-2-aare",
        "round-2-birs",
        "last",
    ):
        torch.save(network().state_dict(), folder / f"{name}.pt")


NAMED = re.compile(r"`([\w.-]+\.toml)`[^`]*\Z")
BLOCK = re.compile(r"^```(\w*)\n(.*?)^```", re.MULTILINE | re.DOTALL)


def run_page(world: World, text: str, note: Callable[[str], None]) -> None:
    """Run every block of a page in order, in the current folder and with one set of names."""
    names = world.names()
    for block in BLOCK.finditer(text):
        kind, code = block.groups()
        note(code)
        if kind == "python":
            with contextlib.redirect_stdout(io.StringIO()):
                exec(compile(code, "snippet", "exec"), names)
        elif kind == "toml":
            found = NAMED.search(text[: block.start()])
            configured(code, found and found[1])
        elif kind == "json":
            json.loads(code)
        elif kind in ("", "sh"):
            for line in code.replace("\\\n", " ").splitlines():
                if re.match(r"\S*(glasshouse|python) ", line) and not line.startswith(FOREIGN):
                    run_line(line)
    names["engine"].__exit__(None, None, None)


@contextlib.contextmanager
def entered(folder: Path) -> Iterator[None]:
    """Work in a folder whose modules can be imported."""
    before = Path.cwd()
    os.chdir(folder)
    try:
        yield
    finally:
        os.chdir(before)
