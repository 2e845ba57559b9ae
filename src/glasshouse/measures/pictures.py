"""How close reconstructions are to the originals, and how close guesses from similar images are.

All images are tensors of shape (N, C, H, W) with pixels in [0, 1]. PSNR is -10 log10 of the mean squared
difference of the pixels, in dB: 18 dB is a typical error of an eighth of the range, 28 dB one of 4%.
"""

from dataclasses import dataclass

import numpy as np
import torch
from kornia.metrics import ssim as ssim_map
from scipy.optimize import linear_sum_assignment
from torch import Tensor

from glasshouse.measures.thresholds import NEAR_EXACT as NEAR_EXACT
from glasshouse.measures.thresholds import RECOVERED as RECOVERED

CAP = 100.0
"""No PSNR is counted higher, in dB: without a cap one perfect image would make a mean infinite."""

GREY = 0.5
"""The pixels of the image that stands in where nothing was returned."""

AUXILIARY = 10_000
"""The most auxiliary images that a guess is made from."""

COMPARED = 500
"""The most auxiliary images that are compared with one another, each with each."""

WINDOW = 11
ROWS = 1024  # images compared at a time, which keeps the memory small
WINDOWED = 64  # images whose windows are compared at a time: their maps fit into a CPU's cache


@dataclass(frozen=True, eq=False)
class Match:
    """The reconstruction of each original, `guess` of shape (N, C, H, W), and its `psnr` in dB, shape (N,).

    `returned`, shape (N,), is false where there is no reconstruction: a uniform grey image stands in.
    """

    guess: Tensor
    psnr: np.ndarray
    returned: np.ndarray


def match(originals: Tensor, reconstructions: Tensor) -> Match:
    """Give each of K reconstructions one of N >= K originals, so that the sum of their PSNRs is largest."""
    rows, columns = linear_sum_assignment(psnr(originals, reconstructions), maximize=True)
    guess = torch.full_like(originals, GREY, dtype=torch.float64)
    guess[torch.from_numpy(rows)] = reconstructions.double()[torch.from_numpy(columns)]
    returned = np.zeros(len(originals), dtype=bool)
    returned[rows] = True
    return Match(guess, paired_psnr(originals, guess), returned)


def others(known: Tensor, images: Tensor, most: int) -> Tensor:
    """Positions of up to `most` of the K `images` that are none of the N `known` ones, shape (L,), ascending.

    Each known image is given one of the others, so that the sum of their PSNRs is largest. Where they reach
    `RECOVERED` they are the same image; beyond that those go first that were given to none.

    >>> shades = torch.tensor([0.0, 0.5, 1.0, 0.4]).view(4, 1, 1, 1)
    >>> others(shades[1:3] + 0.01, shades, 2)
    tensor([0, 3])
    """
    likeness = np.full(len(images), -np.inf)
    decibels = psnr(known, images)
    rows, columns = linear_sum_assignment(decibels, maximize=True)
    likeness[columns] = decibels[rows, columns]
    first = np.argsort(likeness, kind="stable")[:most]
    return torch.from_numpy(np.sort(first[likeness[first] < RECOVERED]))


def psnr(originals: Tensor, reconstructions: Tensor) -> np.ndarray:
    """The PSNR of each of K reconstructions to each of N originals in dB, shape (N, K), at most `CAP`.

    The squared distance is |a|^2 + |b|^2 - 2ab, one matrix product, whose rounding in double stays far below
    the error that `CAP` stands for.
    """
    others = _rows(reconstructions)
    lengths = others.square().sum(1)
    parts = [torch.empty(0, len(others), dtype=torch.float64)]
    for chunk in originals.split(ROWS):
        rows = _rows(chunk)
        squares = torch.addmm(rows.square().sum(1, keepdim=True) + lengths, rows, others.T, alpha=-2)
        parts.append(_decibels(squares / rows.shape[1]))
    decibels: np.ndarray = torch.cat(parts).numpy()
    return decibels


def paired_psnr(originals: Tensor, guesses: Tensor) -> np.ndarray:
    """The PSNR in dB of each guess to the original in the same place, shape (N,), at most `CAP`."""
    decibels: np.ndarray = _decibels((_rows(originals) - _rows(guesses)).square().mean(1)).numpy()
    return decibels


def paired_ssim(originals: Tensor, guesses: Tensor) -> np.ndarray:
    """The structural similarity of each guess to the original in the same place, shape (N,), 1 if equal.

    The mean over channels and over all places where the Gaussian window lies inside the image; its side is 11
    pixels, or the largest odd number that fits.
    """
    side = min(WINDOW, *originals.shape[2:])
    window = side - (1 - side % 2)
    parts = [np.empty(0)]
    for original, guess in zip(originals.split(WINDOWED), guesses.split(WINDOWED)):
        similar = ssim_map(original.double(), guess.double(), window, eps=0.0, padding="valid")
        parts.append(similar.mean((1, 2, 3)).clamp(-1, 1).numpy())
    return np.concatenate(parts)


def oracle_guess(originals: Tensor, auxiliary: Tensor) -> Tensor:
    """The auxiliary image nearest to each original, among the first 10,000; grey where there is none at all.

    Not blind: only someone who knows the original can choose so well. It is the best that showing similar
    images can do, and what beats it comes from the training data.
    """
    if not len(auxiliary):
        return torch.full_like(originals, GREY)
    # Around the middle the squares are small, so that single precision is enough to tell who is nearest.
    others = (auxiliary[:AUXILIARY].float() - GREY).flatten(1)
    lengths = others.square().sum(1)
    chunks = [(chunk.float() - GREY).flatten(1) for chunk in originals.split(ROWS)]
    nearest = [torch.addmm(lengths, rows, others.T, alpha=-2).argmin(1) for rows in chunks]
    return auxiliary[torch.cat(nearest)]


def mean_guess(originals: Tensor, auxiliary: Tensor) -> Tensor:
    """For every original the mean of (the first 10,000) auxiliary images; grey where there is none.

    Blind: of the originals it uses the shape alone.
    """
    if not len(auxiliary):
        return torch.full_like(originals, GREY)
    return auxiliary[:AUXILIARY].mean(0).expand_as(originals)


def single_guess(originals: Tensor, auxiliary: Tensor) -> Tensor:
    """For every original the same auxiliary image; grey where there is none.

    Blind: it is the one with the highest mean PSNR to the auxiliary images, the first 500 of them. Its own,
    `CAP`, adds the same to each.
    """
    if not len(auxiliary):
        return torch.full_like(originals, GREY)
    compared = auxiliary[:COMPARED]
    return compared[int(psnr(compared, compared).mean(0).argmax())].expand_as(originals)


def _rows(images: Tensor) -> Tensor:
    return images.double().flatten(1)


def _decibels(mean_squares: Tensor) -> Tensor:
    return -10 * mean_squares.clamp(min=10 ** (-CAP / 10)).log10()
