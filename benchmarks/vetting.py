"""Measures the vetting of received models: recall by kind of attack, false alarms by state, and seconds.

Crafted models are those that the attacks themselves send; honest ones are those of the zoo's networks at
initialisation, after federated rounds, trained, pruned and noisy. The tables in docs/vetting.md are
rewritten. Without the real data sets only the embedded digits are used. Seconds are those of one core.
"""

import argparse
import json
import sys
import time
from collections import defaultdict
from collections.abc import Iterator
from contextlib import suppress
from copy import deepcopy
from dataclasses import asdict, dataclass
from pathlib import Path

import torch
from torch import Tensor, nn

from glasshouse.access import BlindServerAccess, Protocol
from glasshouse.attacks.attack import Attack, Knowledge
from glasshouse.attacks.crafted.eluding import Eluding
from glasshouse.attacks.crafted.fishing import Fishing, FishingServer
from glasshouse.attacks.crafted.loki import Loki
from glasshouse.attacks.crafted.robbing import RobbingTheFed
from glasshouse.attacks.crafted.saturated_head import SaturatedHead
from glasshouse.attacks.crafted.scale_mia import ScaleMIA
from glasshouse.attacks.crafted.scale_mia_coded import CodedScaleMIA, PeeledScaleMIA
from glasshouse.attacks.labels.head import find_head
from glasshouse.data.images import Images
from glasshouse.data.sources import load
from glasshouse.errors import BadInput, CannotRun
from glasshouse.learning.fit import fit
from glasshouse.learning.layout import Layout, read_vector, write_vector
from glasshouse.learning.recipe import Recipe
from glasshouse.measures.estimate import proportion
from glasshouse.models import MODELS, build
from glasshouse.vetting.vet import vet

sys.path.insert(0, str(Path(__file__).parent.parent / "tests"))
from received_models import disguised, pruned

PAGE = Path(__file__).parent.parent / "docs" / "vetting.md"
DATA = ("digits", "fashion-mnist", "cifar10")
HEAVY = {"convnet", "resnet18", "resnet20-4", "efficientnet-b0", "alexnet", "vgg", "resnet", "vit"}
CLIENTS, HELD = 8, 8
PRUNED = (0.7, 0.9, 0.99)


@dataclass(frozen=True)
class Verdict:
    """One model and what was said of it; `state` is the kind of attack or of honest model."""

    honest: bool
    state: str
    network: str
    data: str
    seed: int
    crafted: bool
    seconds: float
    signs: tuple[str, ...]


class Enough(Exception):
    """A crafting server has sent what it wanted to send."""


def sent_by(attack: Attack, network: nn.Module, images: Images, seed: int) -> list[nn.Module]:
    """The models that `attack` sends in its first round; the last is what most clients get."""
    sent: list[nn.Module] = []

    def access_to(architecture: nn.Module) -> BlindServerAccess:
        def exchange(vector: Tensor, clients, apart=None):
            sent.extend(holding(architecture, each) for each in (*(apart or {}).values(), vector))
            raise Enough

        protocol = protocol_of(architecture, images)
        sizes = (HELD,) * CLIENTS
        return BlindServerAccess(protocol, read_vector(architecture), sizes, exchange, access_to)

    with suppress(Enough):
        attack.run(access_to(network), Knowledge(auxiliary=images), torch.Generator().manual_seed(seed))
    return sent


def protocol_of(architecture: nn.Module, images: Images) -> Protocol:
    recipe = Recipe(epochs=1, batch_size=0, lr=0.1)
    return Protocol(architecture, Layout.of(architecture), recipe, images.shape, images.classes)


def holding(architecture: nn.Module, vector: Tensor) -> nn.Module:
    model = deepcopy(architecture)
    write_vector(model, vector)
    return model


def fished(network: nn.Module, images: Images, seed: int) -> Iterator[tuple[str, nn.Module]]:
    """Models that fish for a class, and for a feature where the network has a layer to do it with."""
    protocol, current = protocol_of(network, images), read_vector(network)
    attack = Fishing()
    access = BlindServerAccess(protocol, current, (HELD,) * CLIENTS, lambda *_: None)
    head = find_head(protocol)
    server = FishingServer(access, head, attack.strength, attack.bias)
    label = seed % images.classes
    row = protocol.layout.named(current)[head.weight][label] * attack.strength
    yield "fishing, class", holding(network, server.craft(label, row))
    try:
        feature = server.choose_feature(images, label, 4)
    except CannotRun:
        return
    yield "fishing, feature", holding(network, server.craft_gate(feature, float(feature.values[-2])))


def crafted_models(name: str, images: Images, seed: int) -> Iterator[tuple[str, nn.Module]]:
    """Everything that crafting servers send to clients with this network."""
    torch.manual_seed(seed)
    network = build(name, images.shape, images.classes)
    steps = 8 if name in HEAVY else 100
    attacks: dict[str, Attack] = {
        "scale-mia": ScaleMIA(steps=steps),
        "scale-mia-coded": CodedScaleMIA(steps=steps),
        "scale-mia-peeled, 3 directions": PeeledScaleMIA(steps=steps, directions=3),
        "robbing-the-fed": RobbingTheFed(bins=256),
        "mandrake (loki)": Loki(bins=128, slots=4),
        "saturated-head": SaturatedHead(),
        "eluding": Eluding(),
    }
    for kind, attack in attacks.items():
        try:
            sent = sent_by(attack, network, images, seed)
        except (CannotRun, torch.linalg.LinAlgError) as error:
            print(f"{kind} on {name}: {error}", file=sys.stderr)
            continue
        yield kind, sent[-1]
        if kind == "eluding":
            yield "eluding, labels of the target", sent[0]
        if kind in ("scale-mia", "scale-mia-coded", "robbing-the-fed"):
            layers = imprinted(sent[-1])
            yield f"{kind}, disguised", disguised(sent[-1], *layers, noise=0.01, honest=0.5, seed=seed)
    yield from fished(network, images, seed)


def imprinted(model: nn.Module) -> tuple[str, str]:
    """The staircase of a crafted model, and the layer after it."""
    linear = [name for name, module in model.named_modules() if isinstance(module, nn.Linear)]
    sizes = [float(directions_alike(model.get_submodule(name).weight)) for name in linear[:-1]]
    place = sizes.index(max(sizes))
    return linear[place], linear[place + 1]


@torch.no_grad()
def directions_alike(rows: Tensor) -> Tensor:
    units = nn.functional.normalize(rows / rows.abs().max(), dim=1)
    return (units @ units[0] > 0.999).float().mean()


def honest_models(name: str, images: Images, seed: int) -> Iterator[tuple[str, nn.Module]]:
    """A network's way through a federation of four clients, and what else may honestly happen to it."""
    torch.manual_seed(seed)
    model = build(name, images.shape, images.classes)
    yield "initial", model
    count, epochs = (64, 2) if name in HEAVY else (800, 10)
    recipe = Recipe(epochs=1, batch_size=16, lr=0.05)
    held = images[torch.randperm(len(images))[:count].numpy()]
    state = read_vector(model)
    for number in (1, 2, 3):
        parts = torch.arange(count).chunk(4)
        states = [fit(model, state, held[part.numpy()], recipe, seed) for part in parts]
        state = torch.stack(states).mean(0)
        yield f"round {number}", holding(model, state)
    state = fit(model, state, held, Recipe(epochs=epochs, batch_size=16, lr=0.05), seed)
    trained = holding(model, state)
    yield "trained", trained
    yield from ((f"pruned {fraction:.0%}", pruned(trained, fraction)) for fraction in PRUNED)
    yield "clipped and noisy", noisy(trained, read_vector(build_like(model)), seed)


def build_like(model: nn.Module) -> nn.Module:
    """The same network with weights drawn anew."""
    fresh = deepcopy(model)
    for module in fresh.modules():
        if hasattr(module, "reset_parameters"):
            module.reset_parameters()
    return fresh


def noisy(model: nn.Module, start: Tensor, seed: int) -> nn.Module:
    """A model after a round with central differential privacy: a clipped change and noise on top."""
    layout, state = Layout.of(model), read_vector(model)
    change = (state - start)[: layout.trainable]
    state[: layout.trainable] = start[: layout.trainable] + change * min(1.0, 1.0 / float(change.norm()))
    rng = torch.Generator().manual_seed(seed)
    state[: layout.trainable] += 0.01 * torch.randn(layout.trainable, generator=rng)
    return holding(model, state)


def judged(
    honest: bool, name: str, data: str, images: Images, seed: int, own: bool = False
) -> Iterator[Verdict]:
    models = honest_models if honest else crafted_models
    try:
        for state, model in models(name, images, seed):
            began = time.process_time()
            vetting = vet(model, images.shape, images.classes, images=images.x if own else None)
            seconds = time.process_time() - began
            signs = tuple(sorted({sign.name for sign in vetting.signs if sign.alarming}))
            yield Verdict(honest, state, name, data, seed, vetting.crafted, seconds, signs)
    except BadInput as error:
        print(f"{name} on {data}: {error}", file=sys.stderr)


def measure(honest: bool, given: argparse.Namespace) -> None:
    """Append verdicts to the log: some seeds of each network and data set, and more at initialisation."""
    for data in given.data:
        try:
            images = load(data).train[:2000]
        except BadInput as error:
            print(error, file=sys.stderr)
            continue
        for name in given.networks:
            few = 1 if name in HEAVY else given.seeds
            for seed in range(given.first, given.first + few):
                write(given.log, judged(honest, name, data, images, seed, given.own))
            if honest:
                write(
                    given.log,
                    initial(name, data, images, range(given.first + few, given.first + few + given.fresh)),
                )


def initial(name: str, data: str, images: Images, seeds: range) -> Iterator[Verdict]:
    for seed in seeds:
        yield from (next(judged(True, name, data, images, seed), None),)


def write(log: Path, verdicts: Iterator[Verdict]) -> None:
    with log.open("a") as file:
        for verdict in filter(None, verdicts):
            print(json.dumps(asdict(verdict)), file=file, flush=True)


def tables(verdicts: list[Verdict]) -> str:
    """The recall by attack, false alarms by state, and seconds by network."""
    return "\n\n".join(
        [
            rates([each for each in verdicts if not each.honest], "crafted by", "found"),
            rates([each for each in verdicts if each.honest], "honest model", "alarms"),
            timing(verdicts),
        ]
    )


def rates(verdicts: list[Verdict], title: str, column: str) -> str:
    grouped: dict[str, list[Verdict]] = defaultdict(list)
    for verdict in verdicts:
        grouped[verdict.state].append(verdict)
    lines = [f"| {title} | models | {column} | share (95%) | by |", "|---|---|---|---|---|"]
    for state, group in [*grouped.items(), ("**all**", verdicts)]:
        found = sum(each.crafted for each in group)
        share = proportion(found, len(group))
        signs = sorted({sign for each in group for sign in each.signs}) if state != "**all**" else []
        interval = f"{share.value:.3f} ({share.low:.3f} to {share.high:.3f})"
        lines.append(f"| {state} | {len(group)} | {found} | {interval} | {', '.join(signs)} |")
    return "\n".join(lines)


def timing(verdicts: list[Verdict]) -> str:
    lines = ["| network | models | seconds, median | largest |", "|---|---|---|---|"]
    for name in MODELS:
        seconds = sorted(each.seconds for each in verdicts if each.network == name)
        if seconds:
            middle = seconds[len(seconds) // 2]
            lines.append(f"| {name} | {len(seconds)} | {middle:.2f} | {seconds[-1]:.2f} |")
    return "\n".join(lines)


def fill(page: str, text: str) -> str:
    begin, end = "<!-- vetting: begin -->", "<!-- vetting: end -->"
    before, rest = page.split(begin)
    return f"{before}{begin}\n{text}\n{end}{rest.split(end)[1]}"


def main() -> None:
    options = argparse.ArgumentParser(description=__doc__)
    options.add_argument("--only", choices=["honest", "crafted"], help="measure only this, and write no page")
    options.add_argument("--seeds", type=int, default=3)
    options.add_argument("--first", type=int, default=0, help="the first seed")
    options.add_argument("--fresh", type=int, default=6, help="more honest models at initialisation")
    options.add_argument("--data", nargs="+", default=DATA)
    options.add_argument("--networks", nargs="+", default=list(MODELS))
    options.add_argument("--own", action="store_true", help="try the client's images beside noise")
    options.add_argument("--log", type=Path, default=Path("runs/vetting.jsonl"))
    options.add_argument("--page", action="store_true", help="write the page from the log alone")
    given = options.parse_args()
    given.log.parent.mkdir(parents=True, exist_ok=True)
    if not given.page:
        for honest in (True, False):
            if given.only in (None, "honest" if honest else "crafted"):
                measure(honest, given)
    verdicts = [Verdict(**json.loads(line)) for line in given.log.read_text().splitlines()]
    print(tables(verdicts))
    if given.only is None:
        PAGE.write_text(fill(PAGE.read_text(), tables(verdicts)))


if __name__ == "__main__":
    torch.set_num_threads(1)
    main()
