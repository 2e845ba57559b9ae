"""Fast gradient sign, its iterations and projected gradient descent: formulas, limits and bookkeeping."""

import dataclasses

import pytest
import torch
import torch.nn.functional as F
from conftest import CLASSES, make_images, make_model
from torch import nn

from glasshouse.access import ModelAccess
from glasshouse.attacks.attack import Knowledge
from glasshouse.attacks.evasion.fgsm import FGSM
from glasshouse.attacks.evasion.pgd import PGD
from glasshouse.errors import BadInput


def rng(seed=0):
    return torch.Generator().manual_seed(seed)


def test_fgsm_moves_each_pixel_along_the_sign_of_its_slope_within_bounds():
    model, images = make_model().eval(), make_images(12)
    (moved,) = FGSM(eps=0.1).run(ModelAccess(model), Knowledge(images), rng()).x
    x = images.x.clone().requires_grad_()
    logits = model(x)
    F.cross_entropy(logits, images.y).backward()
    expected = (images.x + 0.1 * x.grad.sign()).clamp(0, 1)
    right = logits.argmax(1) == images.y
    assert right.any()
    torch.testing.assert_close(moved[right], expected[right])
    assert torch.equal(moved[~right], images.x[~right])


def test_the_papers_eps_is_taken_for_grey_and_colour_images():
    colour = dataclasses.replace(make_images(4), x=torch.rand(4, 3, 8, 8))
    flat = nn.Sequential(nn.Flatten(), nn.Linear(192, CLASSES)).eval()
    for attack in (FGSM(), PGD()):
        assert attack.run(ModelAccess(make_model().eval()), Knowledge(make_images(4)), rng()).eps == (0.3,)
        assert attack.run(ModelAccess(flat), Knowledge(colour), rng()).eps == (0.02,)
    with pytest.raises(BadInput, match="eps = 2"):
        FGSM(eps=2)
