"""The surrogate autoencoder: the network's own encoder, and a decoder that turns latents back into images."""

import dataclasses
import hashlib
import math
import multiprocessing
import os
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from copy import deepcopy
from dataclasses import dataclass
from functools import cached_property

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from glasshouse.access import Protocol
from glasshouse.attacks.crafted.cut import Cut, encoder
from glasshouse.learning.cpu import channels_last, laid_out
from glasshouse.learning.layout import read_vector, write_vector
from glasshouse.learning.seeds import numpy_from

MOST_LATENTS = 10_000
"""As many auxiliary images are encoded to learn how latents are distributed."""

DECODER = "decoder."

CHUNK = 256
"""Images that are encoded or decoded at once: as many as fit into a CPU's cache."""


@dataclass(frozen=True, kw_only=True)
class Schooling:
    """How the autoencoder is trained: Adam steps on batches, the learning rate rising to `lr` and falling.

    With `half` layers compute in bfloat16, which makes large networks twice as fast.
    """

    steps: int
    batch_size: int
    lr: float
    warm_up: float = 0.2
    half: bool = False

    @property
    def described(self) -> str:
        """How long and how exactly, in words for a finding."""
        return f"{self.steps:,} steps of {self.batch_size}{', in bfloat16' if self.half else ''}"


class Decoder(nn.Module):
    """Latents (N, d), of one-image shape `latent`, to images (N, C, H, W) in (0, 1).

    Latents that are vectors are first spread over a small grid. Transposed convolutions then double the size
    until it is the image's, with widths that halve down to 12.
    """

    def __init__(self, latent: tuple[int, ...], shape: tuple[int, int, int]) -> None:
        super().__init__()
        side = latent[1] if len(latent) == 3 else 4
        sizes = _sizes(side, shape)
        layers: list[nn.Module] = []
        if len(latent) == 1:
            grid = (128, -(-sizes[0][0] // 2), -(-sizes[0][1] // 2))
            layers = [nn.Linear(latent[0], math.prod(grid)), nn.ReLU()]
            latent = grid
        layers.append(nn.Unflatten(1, latent))
        width = latent[0]
        for size in sizes[:-1]:
            narrower = max(12, min(width // 2, 128))
            layers += [_Doubling(width, narrower, size), nn.ReLU()]
            width = narrower
        self.layers = nn.Sequential(*layers, _Doubling(width, shape[0], sizes[-1]), nn.Sigmoid())

    def forward(self, latents: Tensor) -> Tensor:
        """(N, d) to (N, C, H, W)."""
        images: Tensor = self.layers(latents)
        return images


class _Doubling(nn.Module):
    """A transposed convolution that doubles the size, stretched to `size` where that is not the double."""

    def __init__(self, inputs: int, outputs: int, size: tuple[int, int]) -> None:
        super().__init__()
        self.convolution = nn.ConvTranspose2d(inputs, outputs, 4, stride=2, padding=1)
        self.convolution.to(memory_format=torch.channels_last)  # type: ignore[call-overload]
        self.size = size

    def forward(self, x: Tensor) -> Tensor:
        x = self.convolution(channels_last(x))
        return x if x.shape[2:] == self.size else F.interpolate(x, self.size, mode="bilinear")


def _sizes(side: int, shape: tuple[int, int, int]) -> list[tuple[int, int]]:
    """The sizes on the way from a grid of `side` to the image: each about the double of the one before."""
    sizes = [(shape[1], shape[2])]
    while sizes[0][0] > 2 * side + 1:
        sizes.insert(0, (-(-sizes[0][0] // 2), -(-sizes[0][1] // 2)))
    return sizes


@dataclass(frozen=True, eq=False)
class Surrogate:
    """A trained autoencoder: the model with its encoder, (P,), its decoder, and auxiliary latents, (N, d).

    Where the latent is the image itself there is nothing to decode. The encoder's latents are `shrunk` times
    what the decoder was trained on. Training it as `schooling` says took `seconds`.
    """

    cut: Cut
    vector: Tensor
    decoder: nn.Module | None
    latents: Tensor
    shape: tuple[int, int, int]
    schooling: Schooling
    shrunk: float = 1.0
    seconds: float = 0.0

    @property
    def described(self) -> str:
        """What an attack has that is granted it beside the auxiliary images, in words for a finding."""
        return f"an autoencoder of them, trained for {self.schooling.described}"

    @cached_property
    def rectified(self) -> bool:
        """Whether latents have exact zeros and nothing below."""
        return bool((self.latents >= 0).all() and (self.latents == 0).double().mean() > 0.01)

    def decode(self, latents: Tensor) -> Tensor:
        """Images (n, C, H, W) in [0, 1] from latents (n, d)."""
        if self.decoder is None or not len(latents):
            return (latents / self.shrunk).reshape(-1, *self.shape).clamp(0, 1)
        with all_cores():
            return in_chunks(self.decoder, latents / self.shrunk).contiguous()

    def tensors(self) -> dict[str, Tensor]:
        """Everything that was learned, by name, for a file."""
        learned = {} if self.decoder is None else self.decoder.state_dict()
        encoder = {"vector": self.vector, "latents": self.latents}
        return encoder | {f"{DECODER}{name}": tensor for name, tensor in learned.items()}


def restored(
    protocol: Protocol, cut: Cut, tensors: Mapping[str, Tensor], schooling: Schooling, seconds: float
) -> Surrogate:
    """The surrogate whose `tensors` these are, and whose training took `seconds`."""
    learned = {name.removeprefix(DECODER): tensors[name] for name in tensors if name.startswith(DECODER)}
    decoder = Decoder(cut.latent, protocol.shape).eval() if learned else None
    if decoder is not None:
        decoder.load_state_dict(learned)
    vector, latents = tensors["vector"], tensors["latents"]
    return Surrogate(cut, vector, decoder, latents, protocol.shape, schooling, seconds=seconds)


def make_surrogate(
    protocol: Protocol,
    cut: Cut,
    x: Tensor,
    schooling: Schooling,
    rng: torch.Generator,
    advance: Callable[[], None] | None = None,
) -> Surrogate:
    """Train the encoder of the protocol's network and a decoder to give back the images `x`.

    `advance` is called after each step.
    """
    began = time.perf_counter()
    network = laid_out(deepcopy(protocol.architecture)).train()
    encode = encoder(network, cut)
    head = {f"{name}.{part}" for name in cut.linear for part in ("weight", "bias")}
    parameters = [parameter for name, parameter in network.named_parameters() if name not in head]
    decoder: nn.Module | None = None
    if parameters:
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(int(torch.randint(2**31, (1,), generator=rng)))
            decoder = Decoder(cut.latent, protocol.shape)
        train_surrogate(parameters, encode, decoder, x, schooling, rng, advance)
        decoder.eval()
    with all_cores():
        latents = in_chunks(encode, x[:MOST_LATENTS])
    seconds = time.perf_counter() - began
    return Surrogate(cut, read_vector(network), decoder, latents, protocol.shape, schooling, seconds=seconds)


def kept_surrogate(protocol: Protocol, cut: Cut, x: Tensor, schooling: Schooling) -> Surrogate:
    """The surrogate that follows from the network, its weights and the images `x`.

    The last one is kept: an audit asks for the same one under every defence.
    """
    digest = hashlib.blake2b(f"{protocol.architecture} {schooling}".encode(), digest_size=8)
    for tensor in (read_vector(protocol.architecture), x):
        digest.update(tensor.contiguous().numpy().data)
    key = digest.hexdigest()
    if key not in _kept:
        _kept.clear()
        rng = torch.Generator().manual_seed(int(key[:12], 16))
        _kept[key] = make_surrogate(protocol, cut, x, schooling, rng)
    return _kept[key]


_kept: dict[str, Surrogate] = {}


def shrink(surrogate: Surrogate, protocol: Protocol) -> Surrogate:
    """The surrogate with latents of length about 1, where scaling one layer of its encoder does that.

    Rows change by their inputs, so short ones leave a sorting machine steadier under several local steps.
    """
    factor = 1 / float(surrogate.latents.double().square().sum(1).mean().sqrt())
    network = deepcopy(protocol.architecture)
    probe = torch.rand(4, *protocol.shape, generator=torch.Generator().manual_seed(0))
    encode = encoder(network.eval(), surrogate.cut)
    last = [name for name in protocol.layout.names if name.rpartition(".")[0] not in surrogate.cut.linear]
    layers = dict.fromkeys(name.rpartition(".")[0] for name in reversed(last))
    for layer in list(layers)[:2]:
        vector = surrogate.vector.clone()
        for part in ("weight", "bias"):
            if f"{layer}.{part}" in protocol.layout.names:
                protocol.layout.named(vector)[f"{layer}.{part}"].mul_(factor)
        with torch.no_grad():
            write_vector(network, surrogate.vector)
            before = encode(probe)
            write_vector(network, vector)
            after = encode(probe)
        if torch.allclose(after, factor * before, rtol=1e-3, atol=1e-6 * factor):
            latents = surrogate.latents * factor
            return dataclasses.replace(surrogate, vector=vector, latents=latents, shrunk=factor)
    return surrogate


def train_surrogate(
    parameters: list[nn.Parameter],
    encode: Callable[[Tensor], Tensor],
    decoder: nn.Module,
    x: Tensor,
    schooling: Schooling,
    rng: torch.Generator,
    advance: Callable[[], None] | None = None,
) -> None:
    """Train encoder and decoder together to give back the images `x`, shape (N, C, H, W)."""
    trained = [*parameters, *decoder.parameters()]
    optimiser = torch.optim.Adam(trained, schooling.lr, weight_decay=1e-5, fused=True)
    warm_up = schooling.warm_up
    if warm_up * schooling.steps == 1:
        warm_up *= 1 - 1e-9  # torch divides by the length of a warm-up less one step; this starts at the peak
    schedule = torch.optim.lr_scheduler.OneCycleLR(
        optimiser, schooling.lr, total_steps=schooling.steps, pct_start=warm_up
    )
    draws = numpy_from(rng)
    with all_cores():
        for _ in range(schooling.steps):
            chosen = torch.from_numpy(draws.integers(len(x), size=min(schooling.batch_size, len(x))))
            batch = channels_last(x[chosen])
            with torch.autocast("cpu", torch.bfloat16, enabled=schooling.half):
                decoded = decoder(encode(batch))
            loss = F.mse_loss(decoded.float(), batch)
            optimiser.zero_grad()
            loss.backward()
            nn.utils.clip_grad_norm_(trained, 1.0)
            optimiser.step()
            schedule.step()
            if advance is not None:
                advance()


@torch.no_grad()
def in_chunks(function: Callable[[Tensor], Tensor], x: Tensor) -> Tensor:
    """`function` of all of `x`, a few images at a time."""
    return torch.cat([function(chunk) for chunk in x.split(CHUNK)])


@contextmanager
def all_cores() -> Iterator[None]:
    """Let torch use all cores for a while: nothing else runs beside an attack's preparations.

    Except in a worker, which is one of many and keeps to its core.
    """
    if multiprocessing.parent_process() is not None:
        yield
        return
    before = torch.get_num_threads()
    allowed = getattr(os, "sched_getaffinity", None)  # can be fewer than the machine has
    torch.set_num_threads(len(allowed(0)) if allowed else os.cpu_count() or 1)
    try:
        yield
    finally:
        torch.set_num_threads(before)
