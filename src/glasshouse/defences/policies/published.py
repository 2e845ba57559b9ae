"""The policies that the ATS paper (Gao et al. 2021) found by its search, and one that it drew at random."""

from dataclasses import dataclass

from glasshouse.defences.policies.policy import Policy, parse_policy


@dataclass(frozen=True)
class Published:
    """A policy, and the data and the network that it was found for; a random one was found for none."""

    policy: str
    data: str | None = None
    model: str | None = None


PUBLISHED = (
    Published("3-1-7", "cifar100", "resnet20-4"),
    Published("43-18-18", "cifar100", "resnet20-4"),
    Published("21-13-3", "cifar100", "convnet"),
    Published("7-4-15", "cifar100", "convnet"),
    Published("19-15-45", "fashion-mnist", "resnet20-4"),
    Published("2-43-21", "fashion-mnist", "resnet20-4"),
    Published("42-28-42", "fashion-mnist", "convnet"),
    Published("14-48-48", "fashion-mnist", "convnet"),
    Published("19-1-18"),
)

FOR_GREY = parse_policy("19-15-45+2-43-21")
FOR_COLOUR = parse_policy("3-1-7+43-18-18")
"""The hybrids of the two that were found for ResNet20."""


def published_policy(channels: int) -> Policy:
    """The hybrid for images of one channel, found on Fashion-MNIST, or of more, found on CIFAR-100."""
    return FOR_GREY if channels == 1 else FOR_COLOUR
