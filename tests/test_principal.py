import pytest
import torch

from glasshouse.attacks.crafted.sorting import principal_axes


@pytest.mark.parametrize(("width", "count"), [(40, 3), (5, 5), (3, 2)])
def test_principal_axes_are_the_top_eigenvectors_of_the_covariance(width, count):
    rng = torch.Generator().manual_seed(width)
    latents = (torch.randn(500, width, generator=rng) * torch.logspace(1, -1, width)).relu()
    axes = principal_axes(latents, count)
    centred = latents.double() - latents.double().mean(0)
    _, vectors = torch.linalg.eigh(centred.T @ centred)
    likeness = (axes * vectors[:, -count:].T.flip(0)).sum(1).abs()
    assert torch.allclose(likeness, torch.ones(count, dtype=torch.double), atol=1e-4)
    assert torch.allclose(axes @ axes.T, torch.eye(count, dtype=torch.double), atol=1e-5)
