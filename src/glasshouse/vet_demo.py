"""`glasshouse vet --demo`: an honest and two crafted models in files, to try the verdicts on."""

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import torch
from safetensors.torch import save_file
from torch import Tensor, nn

from glasshouse.attacks.crafted.leakage import thresholds
from glasshouse.data.images import Images
from glasshouse.data.sources import load
from glasshouse.errors import BadInput
from glasshouse.learning.fit import fit
from glasshouse.learning.layout import read_vector, write_vector
from glasshouse.learning.recipe import Recipe
from glasshouse.models import build
from glasshouse.vetting.files import verdict, vet_file

MODEL, DATA = "mlp", "digits"
CLIENTS, ROUNDS = 4, 3
RECIPE = Recipe(epochs=2, batch_size=32, lr=0.1)
FOLDER = Path("vet-demo")


@dataclass(frozen=True)
class Demonstrated:
    """A file of the demonstration: what is in it, and with which earlier rounds it is vetted."""

    file: str
    story: str
    before: tuple[str, ...] = ()


SHOWN = (
    Demonstrated(
        "honest.safetensors",
        f"the mean of what {CLIENTS} clients trained, after {ROUNDS} rounds",
        ("round-1.safetensors", "round-2.safetensors"),
    ),
    Demonstrated(
        "crafted.safetensors",
        "the same, but every neuron of the first layer measures brightness, each at a threshold of its own",
        ("round-1.safetensors", "round-2.safetensors"),
    ),
    Demonstrated("changed.safetensors", "the honest one behind a layer that nobody agreed on"),
)


def demonstrate(folder: Path = FOLDER) -> Iterator[str]:
    """Write the files into `folder`, and give the commands to try with what they say."""
    torch.set_num_threads(1)  # more would wait for each other in networks this small
    files = {*(shown.file for shown in SHOWN), *(file for shown in SHOWN for file in shown.before)}
    try:
        folder.mkdir(parents=True, exist_ok=True)
        if strangers := {path.name for path in folder.iterdir()} - files:
            raise BadInput(f"--out {folder} holds {min(strangers)} already; give a new or an empty folder")
        own = load(DATA).train
        for name, state in _states(own).items():
            save_file(state, folder / name)
    except OSError as error:
        raise BadInput(f"--out {folder} cannot be written: {error.strerror}; give another folder") from error
    for shown in SHOWN:
        before = [folder / name for name in shown.before]
        vetting = vet_file(
            folder / shown.file,
            MODEL,
            own.shape,
            own.classes,
            before=before,
            images=own.x,
            labels=own.y,
        )
        words = " ".join(f"--before {path}" for path in before)
        command = f"glasshouse vet {folder / shown.file} --model {MODEL} --data {DATA} {words}".strip()
        answer = f"{verdict(vetting)}\n(exit code {int(vetting.crafted)})"
        yield f"# {shown.file}: {shown.story}\n$ {command}\n{answer}\n"
    yield f"The files are in {folder}; the commands above can be run as they stand."


def _states(own: Images) -> dict[str, dict[str, Tensor]]:
    """The tensors of each file, by its name."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        model = build(MODEL, own.shape, own.classes)
        added = nn.Linear(own.x[0].numel(), own.x[0].numel())
    parts = torch.randperm(len(own), generator=torch.Generator().manual_seed(0)).chunk(CLIENTS)
    state, files = read_vector(model), {}
    for number in range(1, ROUNDS + 1):
        trained = [fit(model, state, own[part.numpy()], RECIPE, seed=number) for part in parts]
        state = torch.stack(trained).mean(0)
        write_vector(model, state)
        files[f"round-{number}.safetensors"] = _copied(model)
    files["honest.safetensors"] = files.pop(f"round-{ROUNDS}.safetensors")
    files["changed.safetensors"] = files["honest.safetensors"] | {
        f"front.{name}": part.detach() for name, part in added.named_parameters()
    }
    hidden = next(part for part in model.modules() if isinstance(part, nn.Linear))
    with torch.no_grad():
        hidden.weight.fill_(1 / hidden.in_features)
        assert hidden.bias is not None
        hidden.bias.copy_(-thresholds(own.x.flatten(1).mean(1), len(hidden.bias)))
    files["crafted.safetensors"] = _copied(model)
    return files


def _copied(model: nn.Module) -> dict[str, Tensor]:
    return {name: tensor.clone() for name, tensor in model.state_dict().items()}
