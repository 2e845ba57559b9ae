"""Images of one scene that were found apart, moved until they lie on each other."""

import torch
from torch import Tensor


def registered(x: Tensor, reference: Tensor) -> Tensor:
    """`x`, shape (N, C, H, W), each image shifted by whole pixels to where it fits its reference best.

    The shift is the peak of the cross-correlation, all channels together, which one Fourier transform gives;
    pixels that leave on one side enter on the other. GradInversion registers by a dense flow instead, which
    takes a network trained for it.
    """
    height, width = x.shape[-2:]
    centred = [images - images.mean((-2, -1), keepdim=True) for images in (x, reference)]
    moving, fixed = (torch.fft.rfft2(images) for images in centred)
    correlation = torch.fft.irfft2((fixed * moving.conj()).sum(1), s=(height, width))
    peaks = correlation.flatten(1).argmax(1)
    return torch.stack(
        [image.roll((int(peak) // width, int(peak) % width), (-2, -1)) for image, peak in zip(x, peaks)]
    )


def consensus(group: Tensor) -> Tensor:
    """The mean of `group`, shape (G, N, C, H, W), after each member is registered to the plain mean."""
    mean = group.mean(0)
    return torch.stack([registered(member, mean) for member in group]).mean(0)
