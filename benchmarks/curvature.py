"""Times the largest eigenvalue of the Hessian against PyHessian and eigsh, and its products against others.

Everyone gets the same trained network, the same images and the same number of threads, and goes on until the
same relative residual |Hv - lambda v| / |lambda|, which is measured here and not by the contestants. The
section in docs/benchmarks.md is rewritten.
"""

import argparse
import os
import statistics
import sys
import time
from collections.abc import Callable, Sequence
from copy import deepcopy
from typing import NamedTuple
from unittest.mock import patch

import torch
import torch.nn.functional as F
from page import fill
from scipy.sparse.linalg import LinearOperator, eigsh
from torch import Tensor, nn
from torch.func import functional_call, grad, jvp

from glasshouse.data.images import Images
from glasshouse.data.sources import load
from glasshouse.errors import BadInput
from glasshouse.learning.cpu import channels_last, laid_out
from glasshouse.learning.fit import fit
from glasshouse.learning.layout import read_vector
from glasshouse.learning.recipe import Recipe
from glasshouse.measures.curvature import product, top_eigenvalues
from glasshouse.measures.curvature.product import Hessian
from glasshouse.models import build

try:
    from pyhessian import hessian as PyHessian
except ImportError:
    sys.exit("benchmarks/curvature.py compares with PyHessian: pip install --no-deps pyhessian")

NETWORKS = {"stdcnn": "StdCNN", "lenet": "LeNet"}
IMAGES, TRAINED, THREADS = 2000, 6000, (1, 2)
LOOSE, TIGHT = 3e-3, 1e-5


class Found(NamedTuple):
    """What a contestant found: eigenvalue, eigenvector of shape (P,), and products taken."""

    value: float
    vector: Tensor
    products: int


class Turn(NamedTuple):
    seconds: float
    cpu: float


def task(name: str) -> tuple[nn.Module, Images]:
    """A network after three epochs, in eval mode, and the images over which the loss is taken."""
    data = load("fashion-mnist")
    torch.manual_seed(0)
    model = build(name, data.train.shape, data.train.classes)
    recipe = Recipe(epochs=3, batch_size=64, lr=0.05, momentum=0.9)
    fit(model, read_vector(model), data.train[:TRAINED], recipe, seed=0)
    return model.eval(), data.train[:IMAGES]


def ours(tolerance: float) -> Callable[[nn.Module, Images], Found]:
    def find(model: nn.Module, images: Images) -> Found:
        vectors = []
        along = Hessian.along
        with patch.object(Hessian, "along", lambda self, v: vectors.append(v) or along(self, v)):
            found = top_eigenvalues(model, images, tolerance=tolerance)
        return Found(found.values[0], vectors[0], found.products)

    return find


def pyhessian(products: int) -> Callable[[nn.Module, Images], Found]:
    def find(model: nn.Module, images: Images) -> Found:
        torch.manual_seed(0)
        operator = PyHessian(model, nn.CrossEntropyLoss(), data=(images.x, images.y), cuda=False)
        values, vectors = operator.eigenvalues(maxIter=products, tol=0)
        model.zero_grad()
        return Found(values[0], flat(vectors[0]).detach(), products)

    return find


def with_eigsh(model: nn.Module, images: Images) -> Found:
    """scipy's Lanczos over the product that torch's manual shows: jvp of grad, all images at once."""
    point = {name: parameter.detach() for name, parameter in model.named_parameters()}
    gradient = grad(lambda at: F.cross_entropy(functional_call(model, at, (images.x,)), images.y))
    shapes = [parameter.shape for parameter in point.values()]
    products = 0

    def times(vector: object) -> object:
        nonlocal products
        products += 1
        pieces = torch.as_tensor(vector, dtype=torch.float32).reshape(-1).split([s.numel() for s in shapes])
        direction = {name: piece.view(shape) for name, piece, shape in zip(point, pieces, shapes)}
        return flat(jvp(gradient, (point,), (direction,))[1].values()).numpy()

    size = sum(shape.numel() for shape in shapes)
    start = torch.randn(size, generator=torch.Generator().manual_seed(0)).numpy()
    operator = LinearOperator((size, size), matvec=times, dtype="float32")
    values, vectors = eigsh(operator, k=1, which="LA", tol=TIGHT, v0=start)
    return Found(float(values[0]), torch.from_numpy(vectors[:, 0]), products)


def residual(model: nn.Module, images: Images, found: Found) -> float:
    """The true relative residual of an eigenvector, with its own Rayleigh quotient for an eigenvalue."""
    vector = found.vector / found.vector.norm()
    image = Hessian(model, images)(vector)
    value = vector @ image
    return float((image - value * vector).norm() / value.abs())


def enough_products(model: nn.Module, images: Images) -> int:
    """The fewest products after which PyHessian's vector is good enough: more than it could know itself."""
    products = 1
    while residual(model, images, pyhessian(products)(model, images)) > LOOSE:
        products += 1
    return products


def flat(pieces: Sequence[Tensor]) -> Tensor:
    return torch.cat([piece.reshape(-1) for piece in pieces])


def timed(work: Callable[[], object]) -> Turn:
    began, used = time.perf_counter(), time.process_time()
    work()
    return Turn(time.perf_counter() - began, time.process_time() - used)


def in_turns(contestants: dict[str, Callable[[], object]], repetitions: int) -> dict[str, Turn]:
    """The median cost of each, which take turns so that a slow minute hits them all."""
    turns: dict[str, list[Turn]] = {name: [] for name in contestants}
    for _ in range(repetitions):
        for name, work in contestants.items():
            turns[name].append(timed(work))
            print(f"{name}: {turns[name][-1].seconds:.2f} s", file=sys.stderr, flush=True)
    return {
        name: Turn(*(statistics.median(column) for column in zip(*taken))) for name, taken in turns.items()
    }


def eigenvalue_rows(label: str, model: nn.Module, images: Images, repetitions: int) -> list[str]:
    """A row for each contestant, tolerance and number of threads."""
    theirs = {LOOSE: pyhessian(enough_products(model, images)), TIGHT: with_eigsh}
    rows = []
    for threads in THREADS:
        torch.set_num_threads(threads)
        for tolerance, other in theirs.items():
            peer = "PyHessian" if tolerance == LOOSE else "eigsh, jvp of grad"
            answers = {"Glasshouse": ours(tolerance), peer: other}
            found = {name: answer(model, images) for name, answer in answers.items()}
            left = {name: residual(model, images, one) for name, one in found.items()}
            costs = in_turns(
                {name: lambda answer=answer: answer(model, images) for name, answer in answers.items()},
                repetitions,
            )
            for name, (seconds, cpu) in costs.items():
                ratios = [there / here for there, here in zip(costs[peer], costs["Glasshouse"])]
                faster = "{:.1f}x (CPU {:.1f}x)".format(*ratios)
                cells = (
                    label, f"{threads}", name, f"{found[name].value:.5g}", f"{found[name].products}",
                    f"{left[name]:.1e}",
                    f"{seconds:.2f}", f"{cpu:.2f}", faster if name == peer else "",
                )  # fmt: skip
                rows.append("| " + " | ".join(cells) + " |")
    return rows


def product_rows(label: str, model: nn.Module, images: Images, repetitions: int) -> list[str]:
    """A row for each way to multiply, on one thread."""
    torch.set_num_threads(1)
    parameters = list(model.parameters())
    pieces = [torch.randn(p.shape, generator=torch.Generator().manual_seed(0)) for p in parameters]
    truth = double_backward(deepcopy(model).double(), images, [p.double() for p in pieces], chunk=500)()
    fast, ordered = (
        laid_out(deepcopy(model)).eval(),
        Images(channels_last(images.x), images.y, images.classes),
    )
    written, vector = Hessian(model, images), flat(pieces)
    whole = len(images)
    ways = {
        "double backward": double_backward(model, images, pieces, chunk=whole),
        "double backward, graph kept": kept_graph(model, images, pieces, chunk=whole),
        "jvp of grad": jvp_of_grad(model, images, pieces, chunk=whole),
        "double backward, chunks of 250": double_backward(model, images, pieces, chunk=250),
        "jvp of grad, chunks of 250": jvp_of_grad(model, images, pieces, chunk=250),
        "jvp of grad, chunks of 250, channels last": jvp_of_grad(
            fast_free(model), ordered, pieces, chunk=250
        ),
        "graph kept, chunks of 250": kept_graph(model, images, pieces, chunk=250),
        "graph kept, chunks of 250, channels last": kept_graph(fast, ordered, pieces, chunk=250),
        "graph kept, chunks of 500, channels last": kept_graph(fast, ordered, pieces, chunk=500),
        f"written out, chunks of {product.CHUNK}, channels last": lambda: written(vector),
    }
    errors = {name: float((way() - truth).norm() / truth.norm()) for name, way in ways.items()}
    costs = in_turns(ways, repetitions)
    return [
        f"| {label} | {name} | {cost.seconds:.2f} | {cost.cpu:.2f} | {errors[name]:.0e} |"
        for name, cost in costs.items()
    ]


def fast_free(model: nn.Module) -> nn.Module:
    """Only the memory order: forward differentiation knows no others of the faster layers."""
    return deepcopy(model).to(memory_format=torch.channels_last).eval()


def double_backward(
    model: nn.Module, images: Images, pieces: list[Tensor], *, chunk: int
) -> Callable[[], Tensor]:
    parameters = list(model.parameters())

    def times() -> Tensor:
        return sum(
            flat(torch.autograd.grad(gradient, parameters, pieces))
            for gradient in gradients(model, images, chunk)
        )

    return times


def kept_graph(model: nn.Module, images: Images, pieces: list[Tensor], *, chunk: int) -> Callable[[], Tensor]:
    parameters, kept = list(model.parameters()), list(gradients(model, images, chunk))
    return lambda: sum(flat(torch.autograd.grad(g, parameters, pieces, retain_graph=True)) for g in kept)


def gradients(model: nn.Module, images: Images, chunk: int):
    parameters = list(model.parameters())
    for x, y in zip(images.x.split(chunk), images.y.split(chunk)):
        loss = F.cross_entropy(model(x.to(parameters[0].dtype)), y, reduction="sum") / len(images)
        yield torch.autograd.grad(loss, parameters, create_graph=True)


def jvp_of_grad(
    model: nn.Module, images: Images, pieces: list[Tensor], *, chunk: int
) -> Callable[[], Tensor]:
    point = {name: parameter.detach() for name, parameter in model.named_parameters()}
    direction = dict(zip(point, pieces))

    def part(x: Tensor, y: Tensor) -> Tensor:
        def loss(at: dict[str, Tensor]) -> Tensor:
            return F.cross_entropy(functional_call(model, at, (x,)), y, reduction="sum") / len(images)

        return flat(jvp(grad(loss), (point,), (direction,))[1].values())

    return lambda: sum(part(x, y) for x, y in zip(images.x.split(chunk), images.y.split(chunk)))


def report(repetitions: int) -> str:
    """Markdown tables of eigenvalues and of products."""
    eigenvalues, multiplied = [], []
    for name, label in NETWORKS.items():
        model, images = task(name)
        eigenvalues += eigenvalue_rows(label, model, images, repetitions)
        multiplied += product_rows(label, model, images, repetitions)
    return "\n".join(
        [
            f"**Curvature**: the largest eigenvalue of the Hessian of the mean loss over {IMAGES:,} images "
            f"of Fashion-MNIST; medians of {repetitions} turns on {os.cpu_count()} cores.",
            "",
            "| network | threads | by | eigenvalue | products | relative residual | seconds | CPU seconds "
            "| Glasshouse is faster by |",
            "|---|---|---|---|---|---|---|---|---|",
            *eigenvalues,
            "",
            "Residuals are measured with one product more, which nobody's time includes. Ours includes "
            "copying the model and the interval over the images. PyHessian is stopped after the first "
            "product that is good enough, which it could not know itself.",
            "",
            "| network | one product, one thread | seconds | CPU seconds | relative error |",
            "|---|---|---|---|---|",
            *multiplied,
        ]
    )


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--repetitions", type=int, default=3, help="how many turns everyone has")
    try:
        measured = report(parser.parse_args().repetitions)
    except BadInput as error:
        sys.exit(str(error))
    fill("curvature", measured)


if __name__ == "__main__":
    main()
