"""Training on transformed images, to keep the originals out of the gradients (ATS, Gao et al. 2021)."""

from dataclasses import dataclass, field
from pathlib import Path

import torch
from torch import Tensor

from glasshouse.defences.defence import Defence
from glasshouse.defences.policies.files import PolicyFile, read_policy
from glasshouse.defences.policies.policy import GRAMMAR, Policy, parse_policy
from glasshouse.defences.policies.published import published_policy
from glasshouse.errors import BadInput, quoted
from glasshouse.learning.augment import crop_and_flip
from glasshouse.models.shapes import Shape
from glasshouse.options import check_flag


@dataclass(frozen=True, kw_only=True)
class TransformationPolicy(Defence):
    """Transforms each image of a training batch by a `policy`, so that the original is harder to rebuild.

    `policy` is one written as `3-1-7`, a hybrid of several as `3-1-7+43-18-18`, the path of a policy file,
    `*.toml`, or `published`: the hybrid of the two policies that the ATS paper found for ResNet20, which is
    3-1-7+43-18-18 (CIFAR-100) for images of several channels and 19-15-45+2-43-21 (Fashion-MNIST) for images
    of one. With `crop_and_flip` each image is first shifted by up to 4 pixels, and half of them are
    mirrored, as the papers' code does without their saying so.
    """

    policy: str = "published"
    crop_and_flip: bool = False
    _read: Policy | PolicyFile | None = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        check_flag("transformation-policy", "crop_and_flip", self.crop_and_flip)
        object.__setattr__(self, "_read", _read(self.policy))

    def on_batch(self, x: Tensor, rng: torch.Generator) -> Tensor:
        return self._policy(x).apply(self._cropped(x, rng), rng)

    def move(self, x: Tensor, rng: torch.Generator) -> Tensor:
        """Do only what moves pixels, with the draws that `on_batch` would make."""
        return self._policy(x).move(self._cropped(x, rng), rng)

    def _policy(self, x: Tensor) -> Policy:
        channels, height, width = x.shape[1:]
        return self.policy_for((channels, height, width))

    def _cropped(self, x: Tensor, rng: torch.Generator) -> Tensor:
        return crop_and_flip(x, rng) if self.crop_and_flip else x

    def policy_for(self, shape: Shape) -> Policy:
        """The policy that images of `shape` (channels, height, width) are transformed by."""
        if self._read is None:
            return published_policy(shape[0])
        if isinstance(self._read, Policy):
            return self._read
        if self._read.shape != shape:
            raise BadInput(
                f"policy file {self.policy} is for images of shape {self._read.shape}, and these have "
                f"{shape}; give a policy for them, or policy='{self._read.policy}' to use this one anyway"
            )
        return self._read.policy


def _read(policy: object) -> Policy | PolicyFile | None:
    """What `policy` stands for; nothing where that is known only once the images are."""
    if policy == "published":
        return None
    if isinstance(policy, str) and policy.endswith(".toml"):
        return read_policy(Path(policy))
    if isinstance(policy, str) and policy[:1].isdigit():
        return parse_policy(policy)
    raise BadInput(
        f"transformation-policy policy = {quoted(policy)} is none; {GRAMMAR}, or give 'published', or the "
        "path of a policy file, which ends in .toml"
    )
