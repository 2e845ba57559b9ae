"""What attackers, who know the recipe, make of smoothed and mixed labels."""

import pytest
import torch
from cases import access_to, finished
from conftest import make_images, make_plain_model
from sent_updates import seen_updates

from glasshouse.access import ServerAccess
from glasshouse.attacks.attack import Knowledge
from glasshouse.attacks.crafted.saturated_head import SaturatedHead
from glasshouse.attacks.inversion.target import Matcher
from glasshouse.attacks.inversion.targets import make_target
from glasshouse.attacks.inversion.updates import MIXED, attacked_updates, conditions
from glasshouse.attacks.labels.counts import LabelCountsFromUpdates
from glasshouse.learning.recipe import Recipe


@pytest.mark.parametrize("recipe", [
    Recipe(batch_size=0, lr=0.1, label_smoothing=0.2),
    Recipe(batch_size=0, lr=0.1, label_smoothing=0.2, mix_up=1.0),
    Recipe(epochs=3, batch_size=10, lr=0.01, label_smoothing=0.4),
])  # fmt: skip
def test_a_saturated_head_still_counts_smoothed_and_mixed_labels_exactly(recipe, engine):
    case = finished(engine, recipe=recipe, rounds=0)
    evidence = SaturatedHead().run(access_to(case, ServerAccess), Knowledge(), torch.Generator())
    for counted in evidence.counted:
        (client,) = counted.clients
        assert list(counted.counts) == case.truth.label_counts[client].tolist()


def test_labels_are_counted_from_an_update_of_smoothed_ones():
    clients = [make_images(8)[:3], make_images(8)[1:4]]
    access = seen_updates(make_plain_model(), clients, Recipe(batch_size=0, lr=0.1, label_smoothing=0.5))
    evidence = LabelCountsFromUpdates().run(access, Knowledge(), torch.Generator())
    for counted, images in zip(evidence.counted, clients):
        assert list(counted.counts) == images.label_counts().tolist()


def test_an_inversion_explains_smoothed_labels_and_says_that_mixtures_are_unknown():
    images = make_images(4)
    smoothed = Recipe(batch_size=0, lr=0.1, label_smoothing=0.3)
    (update,) = attacked_updates(seen_updates(make_plain_model(), [images], smoothed), 1)
    target, _ = make_target(update, images.y, 4, 16, torch.Generator())
    matcher = Matcher(target)
    for found, seen in zip(matcher(images.x[None], images.y), matcher.seen):
        torch.testing.assert_close(found.detach(), seen, atol=1e-5, rtol=1e-3)
    assert "0.3 of each label spread" in conditions([update], given=False)
    access = seen_updates(make_plain_model(), [images], Recipe(batch_size=0, mix_up=1.0))
    assert MIXED in conditions(attacked_updates(access, 1), given=False)
