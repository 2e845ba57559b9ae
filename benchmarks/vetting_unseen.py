"""Measures the vetting on kinds that it was not built on: recall by craft and false alarms by honest kind.

Thresholds were chosen on the honest kinds `SEEN` of tests/honest_models.py (with --choose, on digits and
Fashion-MNIST), and are fixed in the source. Everything else is judged by them, on other models: each in
what a client may have at hand: the weights alone, its own images too, and the models of earlier rounds too.
The tables between the second pair of marks in docs/vetting.md are rewritten from the log.
"""

import argparse
import json
import sys
import time
from collections import defaultdict
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from pathlib import Path

import torch
from torch import nn
from vetting import PAGE

from glasshouse import vet
from glasshouse.data.images import Images
from glasshouse.data.sources import load
from glasshouse.errors import BadInput
from glasshouse.measures.estimate import proportion
from glasshouse.vetting.history import moved
from glasshouse.vetting.probing import probe
from glasshouse.vetting.singling import layer_shares
from glasshouse.vetting.traps import firing

sys.path.insert(0, str(Path(__file__).parent.parent / "tests"))
from honest_models import SEEN, UNSEEN, Received, in_rounds
from unseen_models import BUILT_FOR, CRAFTS, STEALTHY, part_way

HELD, AUXILIARY = 800, 300
"""Images of all clients together, and other ones of a crafting server."""

LIGHT = ("mlp", "lenet", "stdcnn", "m1", "c1", "cnn")
KNOWING = ("weights", "own images", "earlier rounds")
BEGIN, END = "<!-- unseen: begin -->", "<!-- unseen: end -->"


@dataclass(frozen=True)
class Judged:
    """What was said of one model, for each of `KNOWING` that applies: alarming signs, or none."""

    honest: bool
    kind: str
    network: str
    data: str
    seed: int
    signs: dict[str, list[str]]
    accuracy: float
    seconds: float


def material(data: str, seed: int) -> tuple[Images, Images]:
    """Images of the clients, and of the server."""
    images = load(data).train
    order = torch.randperm(len(images), generator=torch.Generator().manual_seed(seed))
    return images[order[:HELD].numpy()], images[order[HELD : HELD + AUXILIARY].numpy()]


def judge(received: Received) -> tuple[dict[str, list[str]], float]:
    """The alarming signs by what the client has at hand, and the seconds that all of it took."""
    own = received.own
    options = {"weights": {}, "own images": {"images": own.x, "labels": own.y}}
    if received.predecessors:
        options["earlier rounds"] = options["own images"] | {"predecessors": received.predecessors}
    signs = {}
    for knowing, given in options.items():
        began = time.process_time()
        vetting = vet(received.model, own.shape, own.classes, **given)
        seconds = time.process_time() - began
        signs[knowing] = sorted({sign.name for sign in vetting.signs if sign.alarming})
    return signs, seconds


def accuracy(model: nn.Module, images: Images) -> float:
    with torch.no_grad():
        return float((model.eval()(images.x).argmax(1) == images.y).float().mean())


Case = tuple[bool, str, Received]
"""Whether it is honest, the kind, and what the client received."""


def received_models(data: str, name: str, seed: int, kinds: list[str]) -> Iterator[Case]:
    """Everything that is judged of one network, or only `kinds`, if any are named."""
    images, auxiliary = material(data, seed)
    for kind, make in (SEEN | UNSEEN).items():
        if kind in (kinds or [kind]):
            yield from ((True, kind, received) for received in make(name, images, seed))
    crafts = {kind: craft for kind, craft in CRAFTS.items() if kind in (kinds or [kind])}
    if crafts:
        received = next(in_rounds(name, images, seed, rounds=(3,)))
        for kind, craft in crafts.items():
            try:
                model = craft(received.model, auxiliary, seed)
            except (IndexError, torch.linalg.LinAlgError) as error:  # no layer that it could be put into
                print(f"{kind} on {name}: {error}", file=sys.stderr)
                continue
            yield False, kind, Received(model, received.own, received.predecessors)
            if kind in STEALTHY:
                *before, now = (part_way(received.model, model, share) for share in (0.7, 0.8, 0.9, 1.0))
                yield False, f"{kind}, a tenth each round", Received(now, received.own, tuple(before))


def measure(given: argparse.Namespace) -> None:
    with given.log.open("a") as log:
        for data in given.data:
            for name in given.networks:
                for seed in range(given.first, given.first + given.seeds):
                    for honest, kind, received in received_models(data, name, seed, given.kinds):
                        signs, seconds = judge(received)
                        right = accuracy(received.model, received.own)
                        row = Judged(honest, kind, name, data, seed, signs, right, seconds)
                        print(json.dumps(asdict(row)), file=log, flush=True)


def choose(given: argparse.Namespace) -> None:
    """Print the worst that the honest models of the kinds `SEEN` show, from which thresholds were chosen."""
    worst = {"gained": 0.0, "effective": 1.0, "dsnr": 0.0, "rare": 0.0, "beyond": 0.0}
    count = 0
    for data in given.data:
        for name in given.networks:
            for seed in range(given.first, given.first + given.seeds):
                images, _ = material(data, seed)
                for kind in SEEN.values():
                    for received in kind(name, images, seed):
                        count += 1
                        _worsen(worst, received)
    print(f"{count} models:", {name: round(value, 3) for name, value in worst.items()})


def _worsen(worst: dict[str, float], received: Received) -> None:
    own = received.own
    shares = layer_shares(received.model, own)
    worst["gained"] = max(worst["gained"], *(share.gained for share in shares))
    worst["dsnr"] = max(worst["dsnr"], *(share.dsnr for share in shares))
    worst["effective"] = min(worst["effective"], *(share.effective for share in shares))
    layers = firing(probe(received.model, own.shape, 1, own.x))
    worst["rare"] = max([worst["rare"], *(layer.rare for layer in layers)])
    if received.predecessors:
        changes = moved(received.model, received.predecessors, own)
        worst["beyond"] = max([worst["beyond"], *(each.beyond for each in changes if each.relative > 0.1)])


def tables(rows: list[Judged]) -> str:
    """Recall by craft and false alarms by honest kind, each by what the client has at hand."""
    crafted = [row for row in rows if not row.honest]
    groups = [
        ("crafted: kinds that a sign names", [row for row in crafted if row.kind in BUILT_FOR], "found"),
        ("crafted: kinds not seen before", [row for row in crafted if row.kind not in BUILT_FOR], "found"),
        ("honest: kinds that thresholds were chosen on, other models",
         [row for row in rows if row.honest and row.kind in SEEN], "alarms"),
        ("honest: kinds not seen before",
         [row for row in rows if row.honest and row.kind not in SEEN], "alarms"),
    ]  # fmt: skip
    return "\n\n".join(table(*group) for group in groups if group[1])


def table(title: str, rows: list[Judged], word: str) -> str:
    kinds: dict[str, list[Judged]] = defaultdict(list)
    for row in rows:
        kinds[row.kind].append(row)
    heads = [title, "models", "accuracy", *(f"{word}: {name}" for name in KNOWING), "by"]
    lines = [f"| {' | '.join(heads)} |", "|---" * len(heads) + "|"]
    for kind, group in [*kinds.items(), ("**all**", rows)]:
        middle = sorted(row.accuracy for row in group)[len(group) // 2]
        shares = [share([row.signs[name] for row in group if name in row.signs]) for name in KNOWING]
        by = {sign for row in group for signs in row.signs.values() for sign in signs}
        named = ", ".join(sorted(by)) if kind != "**all**" else ""
        lines.append(f"| {kind} | {len(group)} | {middle:.2f} | {' | '.join(shares)} | {named} |")
    return "\n".join(lines)


def share(signs: list[list[str]]) -> str:
    """How many have a sign, with the exact interval."""
    if not signs:
        return ""
    found = proportion(sum(map(bool, signs)), len(signs))
    return f"{sum(map(bool, signs))} of {len(signs)} ({found.low:.2f} to {found.high:.2f})"


def described(rows: list[Judged]) -> str:
    """What was judged, in a sentence."""
    held: dict[str, set[str]] = defaultdict(set)
    for row in rows:
        held[row.data].add(row.network)
    places = "; ".join(f"{data}: {', '.join(f'`{name}`' for name in sorted(held[data]))}" for data in held)
    slowest = max(row.seconds for row in rows)
    return (
        f"{len(rows)} models ({places}). Seconds for own images and earlier rounds together: median "
        f"{sorted(row.seconds for row in rows)[len(rows) // 2]:.2f}, largest {slowest:.1f}, of one core."
    )


def main() -> None:
    options = argparse.ArgumentParser(description=__doc__)
    options.add_argument("--kinds", nargs="+", default=[], choices=[*SEEN, *UNSEEN, *CRAFTS], metavar="KIND")
    options.add_argument("--seeds", type=int, default=3)
    options.add_argument("--first", type=int, default=0, help="the first seed")
    options.add_argument("--data", nargs="+", default=["digits"])
    options.add_argument("--networks", nargs="+", default=list(LIGHT))
    options.add_argument("--log", type=Path, default=Path("runs/vetting-unseen.jsonl"))
    options.add_argument("--page", action="store_true", help="write the page from the log alone")
    options.add_argument("--choose", action="store_true", help="only show what thresholds were chosen from")
    given = options.parse_args()
    given.log.parent.mkdir(parents=True, exist_ok=True)
    if given.choose:
        choose(given)
        return
    if not given.page:
        try:
            measure(given)
        except BadInput as error:
            sys.exit(str(error))
    rows = [Judged(**json.loads(line)) for line in given.log.read_text().splitlines()]
    text = f"{described(rows)}\n\n{tables(rows)}"
    print(text)
    if given.page:
        before, rest = PAGE.read_text().split(BEGIN)
        PAGE.write_text(f"{before}{BEGIN}\n{text}\n{END}{rest.split(END)[1]}")


if __name__ == "__main__":
    torch.set_num_threads(1)
    main()
