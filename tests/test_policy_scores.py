"""S_pri and S_acc: against plain loops, and where their values are known."""

import math

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from glasshouse.data.images import Images
from glasshouse.defences.policies.accuracy_score import (
    THRESHOLD,
    AccuracyScore,
    accuracy_score,
    batch_score,
    local_maps,
    one_of_each_class,
)
from glasshouse.defences.policies.policy import parse_policy
from glasshouse.defences.policies.privacy_score import cosines, image_scores, privacy_score
from glasshouse.learning.seeds import torch_rng
from glasshouse.models import build


def some_images(count: int, shape: tuple[int, int, int] = (1, 8, 8), classes: int = 10) -> Images:
    rng = torch.Generator().manual_seed(0)
    x = torch.rand(count, *shape, generator=rng)
    return Images(x, torch.randint(classes, (count,), generator=rng), classes)


def identity(x: Tensor, rng: torch.Generator) -> Tensor:
    return x


def to_grey(x: Tensor, rng: torch.Generator) -> Tensor:
    return torch.full_like(x, 0.5)


def trained(name: str, shape: tuple[int, int, int], classes: int = 10) -> nn.Module:
    torch.manual_seed(1)
    return build(name, shape, classes).eval()


def point_by_point(model: nn.Module, image: Tensor, goal: Tensor, label: Tensor, noise: Tensor) -> float:
    """S_pri of one image, a point at a time, as its definition reads."""

    def gradient(x: Tensor) -> list[Tensor]:
        loss = F.cross_entropy(model(x[None]), label[None])
        return [part.flatten().double() for part in torch.autograd.grad(loss, list(model.parameters()))]

    sought = gradient(goal)
    similar = []
    for i in range(21):
        parts = gradient((1 - i / 20) * noise + i / 20 * goal)
        cosine = [float(p @ q / (p.norm() * q.norm())) for p, q in zip(parts, sought)]
        similar.append(sum(cosine) / len(cosine))
    return sum((similar[i] + similar[i + 1]) / 2 for i in range(20)) / 20


@pytest.mark.parametrize("name", ["lenet", "mlp", "c1"])
@pytest.mark.parametrize("written", ["3-1-7", "19-15-45+2-43-21"])
def test_the_privacy_score_is_that_of_a_plain_loop(name: str, written: str) -> None:
    model, images, policy = trained(name, (1, 8, 8)), some_images(3), parse_policy(written)
    scores = image_scores(model, images, policy.apply, seed=5)
    for place in range(3):
        noise = torch.rand(1, 1, 8, 8, generator=torch_rng(5, "noise", place))[0]
        goal = policy.apply(images.x[place : place + 1], torch_rng(5, "transform", place))[0]
        expected = point_by_point(model, images.x[place], goal, images.y[place], noise)
        assert scores[place] == pytest.approx(expected, abs=1e-4)


def test_the_privacy_score_does_not_depend_on_how_images_are_divided(monkeypatch: pytest.MonkeyPatch) -> None:
    model, images, policy = trained("lenet", (1, 8, 8)), some_images(7), parse_policy("3-1-7")
    whole = image_scores(model, images, policy.apply)
    parts = [
        image_scores(model, images[start : start + 3], policy.apply, first=start) for start in range(0, 7, 3)
    ]
    assert np.allclose(whole, np.concatenate(parts), atol=1e-5)
    monkeypatch.setattr("glasshouse.defences.policies.privacy_score.GRADIENT_BYTES", 1)
    assert np.allclose(whole, image_scores(model, images, policy.apply), atol=1e-5)


def test_the_privacy_score_is_the_mean_with_its_interval() -> None:
    model, images = trained("lenet", (1, 8, 8)), some_images(5)
    score = privacy_score(model, images, identity)
    each = image_scores(model, images, identity)
    assert score.n == 5
    assert score.value == pytest.approx(each.mean())
    assert score.low < score.value < score.high


def test_the_privacy_score_of_a_linear_network_is_known_by_hand() -> None:
    """With zero weights all points have one residual r, and g = r x': the cosine of the points, bias 1."""
    model = nn.Sequential(nn.Flatten(), nn.Linear(4, 3)).eval()
    for parameter in model.parameters():
        nn.init.zeros_(parameter)
    images = some_images(2, (1, 2, 2), 3)
    scores = image_scores(model, images, identity, seed=2)
    for place in range(2):
        noise = torch.rand(1, 1, 2, 2, generator=torch_rng(2, "noise", place)).flatten().double()
        goal = images.x[place].flatten().double()
        points = [(1 - i / 20) * noise + i / 20 * goal for i in range(21)]
        similar = [(1 + float(point @ goal / (point.norm() * goal.norm()))) / 2 for point in points]
        assert scores[place] == pytest.approx(np.trapezoid(similar, dx=1 / 20), abs=1e-6)


def test_an_image_that_equals_its_noise_has_the_score_one() -> None:
    def to_noise(x: Tensor, rng: torch.Generator) -> Tensor:
        return torch.rand(x.shape, generator=torch_rng(0, "noise", 0))

    score = image_scores(trained("lenet", (1, 8, 8)), some_images(1), to_noise)
    assert score[0] == pytest.approx(1, abs=1e-5)


def test_a_tensor_without_a_gradient_counts_as_unlike() -> None:
    rows = torch.tensor([[[0.0, 0.0], [1.0, 1.0], [1.0, 0.0]], [[1.0, 2.0], [3.0, 4.0], [0.0, 0.0]]])
    expected = [[0, math.sqrt(0.5), 1], [0, 0, 0]]
    assert np.allclose(cosines(rows), expected)


def test_an_unused_tensor_lowers_the_score_to_the_others_share() -> None:
    model = trained("lenet", (1, 8, 8))
    with_more = nn.Sequential(*model, nn.Identity()).eval()
    with_more[-1].register_parameter("unused", nn.Parameter(torch.ones(2)))
    images = some_images(2)
    tensors = len(list(model.parameters()))
    plain, more = image_scores(model, images, identity), image_scores(with_more, images, identity)
    assert np.allclose(more, plain * tensors / (tensors + 1), atol=1e-6)


def test_bfloat16_leaves_the_privacy_score_within_its_interval() -> None:
    model, images = trained("c1", (1, 8, 8)), some_images(6)
    exact = privacy_score(model, images, identity)
    rounded = privacy_score(model, images, identity, precision="bfloat16")
    assert exact.low < rounded.value < exact.high
    assert rounded.value == pytest.approx(exact.value, abs=0.02)


@pytest.mark.parametrize("name", ["lenet", "c1"])
def test_the_accuracy_score_is_that_of_a_plain_computation(name: str) -> None:
    model, images = trained(name, (1, 8, 8)), some_images(40)
    batches = [images[:20], images[20:]]
    scores, sizes = [], []
    for number, batch in enumerate(batches):
        first = [
            next(i for i, label in enumerate(batch.y.tolist()) if label == c) for c in set(batch.y.tolist())
        ]
        x = parse_policy("3-1-7").apply(batch.x[sorted(first)], torch_rng(4, "transform", number))
        rows = []
        for image in x:
            image = image[None].clone().requires_grad_(True)
            model(image).sum().backward()
            rows.append(image.grad.flatten().numpy().astype(float))
        v = np.linalg.eigvalsh(np.corrcoef(np.stack(rows)))
        scores.append(-np.sum(np.log(v + 1e-5) + 1 / (v + 1e-5)))
        sizes.append(len(first))
    score = accuracy_score(model, batches, parse_policy("3-1-7").apply, seed=4)
    assert score.value == pytest.approx(np.mean(scores), rel=1e-3)
    assert (score.images, score.batches) == (np.mean(sizes), 2)


def test_the_best_accuracy_score_of_n_images_is_minus_n() -> None:
    apart = torch.zeros(6, 12)
    for row in range(6):
        apart[row, 2 * row], apart[row, 2 * row + 1] = 1, -1
    assert batch_score(apart) == pytest.approx(-6, abs=1e-3)
    assert batch_score(torch.rand(6, 12)) < -6


def test_images_that_all_become_one_are_rejected() -> None:
    """Equal maps have the eigenvalues N, 0, ..., 0; each 0 costs 1e5 - log 1e5."""
    model, images = trained("lenet", (1, 8, 8)), some_images(40)
    score = accuracy_score(model, [images], to_grey)
    assert score.images == 10
    assert score.value == pytest.approx(-(math.log(10) + 0.1 + 9 * (1e5 + math.log(1e-5))), rel=1e-3)
    assert not score.passes
    assert accuracy_score(model, [images], identity).value > score.value


def test_a_dead_network_tells_nothing_apart() -> None:
    assert batch_score(torch.zeros(3, 4)) == pytest.approx(-3 * (1e5 + math.log(1e-5)), rel=1e-6)


def test_the_threshold_is_the_published_one_at_63_images_and_scales_with_their_number() -> None:
    assert AccuracyScore(-85, 63, 10).passes
    assert not AccuracyScore(-85.01, 63, 10).passes
    assert AccuracyScore(-10, 10, 10).threshold == pytest.approx(THRESHOLD * 10)
    assert AccuracyScore(-10.5, 10, 10).passes
    assert not AccuracyScore(-85, 10, 10).passes


def test_one_image_of_each_class_is_kept_the_first() -> None:
    images = Images(torch.arange(5.0).view(5, 1, 1, 1) / 5, torch.tensor([2, 0, 2, 1, 0]), 3)
    kept = one_of_each_class(images)
    assert kept.y.tolist() == [2, 0, 1]
    assert torch.equal(kept.x, images.x[[0, 1, 3]])


def test_the_local_map_of_a_linear_network_is_the_sum_of_its_rows() -> None:
    layer = nn.Linear(4, 3)
    maps = local_maps(nn.Sequential(nn.Flatten(), layer), torch.rand(2, 1, 2, 2))
    assert torch.allclose(maps, layer.weight.sum(0).expand(2, 4))


def test_few_points_at_a_time_give_the_same_score(monkeypatch: pytest.MonkeyPatch) -> None:
    model, images = trained("mlp", (1, 8, 8)), some_images(3)
    whole = image_scores(model, images, identity)
    for points in (3, 4, 20):
        monkeypatch.setattr("glasshouse.defences.policies.privacy_score.GRADIENT_BYTES", 1)
        monkeypatch.setattr("glasshouse.defences.policies.privacy_score.FEWEST_POINTS", points)
        assert np.allclose(whole, image_scores(model, images, identity), atol=1e-5)
