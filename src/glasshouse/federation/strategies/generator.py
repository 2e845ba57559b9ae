"""FedGEN's generator (Zhu et al. 2021): features that the clients' last layers assign to a class."""

from collections.abc import Iterator
from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor, nn


class Generator(nn.Module):
    """Noise, (N, noise), and labels, (N,), to features for the networks' last layer, (N, latent)."""

    def __init__(self, noise: int, classes: int, hidden: int, latent: int) -> None:
        super().__init__()
        self.noise = noise
        self.classes = classes
        self.layers = nn.Sequential(
            nn.Linear(noise + classes, hidden), nn.BatchNorm1d(hidden), nn.ReLU(), nn.Linear(hidden, latent)
        )

    def forward(self, noise: Tensor, labels: Tensor) -> Tensor:
        """The features."""
        latent: Tensor = self.layers(torch.cat([noise, F.one_hot(labels, self.classes)], 1))
        return latent

    def draw(self, number: int, rng: torch.Generator) -> Tensor:
        """Noise for `number` rows: uniform in [0, 1], as in the authors' code."""
        return torch.rand(number, self.noise, generator=rng)


@dataclass(frozen=True, eq=False)
class Teachers:
    """The last layers of K clients: `weight`, (K, classes, latent), and `bias`, (K, classes).

    `counts`, (K, classes), is how many images of each class each of them has.
    """

    weight: Tensor
    bias: Tensor
    counts: Tensor

    @property
    def labels(self) -> Tensor:
        """The classes of which any teacher has seen an image."""
        return self.counts.sum(0).nonzero().flatten()

    def loss(self, latent: Tensor, labels: Tensor) -> Tensor:
        """The teachers' cross-entropy for features of `labels`, each weighted by its share of the label.

        `labels` must be among those that a teacher has seen.
        """
        logits = torch.einsum("nl,kcl->nck", latent, self.weight) + self.bias.T
        losses = F.cross_entropy(logits, labels[:, None].expand(-1, len(self.bias)), reduction="none")
        counts = self.counts[:, labels].T.to(latent.dtype)
        return (losses * counts / counts.sum(1, keepdim=True)).sum(1).mean()


def diversity_loss(noise: Tensor, latent: Tensor) -> Tensor:
    """Near 1 where different noise, (N, noise), makes the same features, (N, latent), and less elsewhere.

    exp(-mean over all pairs of their noise's mean squared difference times their features' mean absolute
    difference), the distances of the authors' code.
    """
    noise_distance = (noise[:, None] - noise).square().mean(2)
    latent_distance = (latent[:, None] - latent).abs().mean(2)
    return torch.exp(-(noise_distance * latent_distance).mean())


def train_generator(
    generator: Generator,
    teachers: Teachers,
    optimiser: torch.optim.Optimizer,
    *,
    steps: int,
    batch_size: int,
    diversity: float,
    rng: torch.Generator,
) -> None:
    """Fit `generator` to the teachers for `steps` batches of labels that some of them have seen."""
    generator.train()
    seen = teachers.labels
    for _ in range(steps):
        labels = seen[torch.randint(len(seen), (batch_size,), generator=rng)]
        noise = generator.draw(batch_size, rng)
        latent = generator(noise, labels)
        loss = teachers.loss(latent, labels) + diversity * diversity_loss(noise, latent)
        optimiser.zero_grad()
        loss.backward()
        optimiser.step()


def read_moments(optimiser: torch.optim.Adam) -> dict[str, Tensor]:
    """What Adam remembers: both moments of the gradient in one vector each, and its number of steps."""
    states = [optimiser.state[parameter] for parameter in _parameters(optimiser)]
    return {
        "first": torch.cat([state["exp_avg"].flatten() for state in states]),
        "second": torch.cat([state["exp_avg_sq"].flatten() for state in states]),
        "steps": states[0]["step"].clone(),
    }


def write_moments(optimiser: torch.optim.Adam, first: Tensor, second: Tensor, steps: Tensor) -> None:
    """Have Adam continue from what `read_moments` read."""
    parameters = list(_parameters(optimiser))
    sizes = [parameter.numel() for parameter in parameters]
    for parameter, mean, square in zip(parameters, first.split(sizes), second.split(sizes)):
        optimiser.state[parameter] = {
            "step": steps.clone(),
            "exp_avg": mean.view_as(parameter).clone(),
            "exp_avg_sq": square.view_as(parameter).clone(),
        }


def _parameters(optimiser: torch.optim.Adam) -> Iterator[Tensor]:
    return (parameter for group in optimiser.param_groups for parameter in group["params"])
