"""Attacks whose shadow models are trained under the defence, beside the same attacks that do not know it."""

import dataclasses

import numpy as np
import pytest
from cases import finished
from planted import answering, knowing, logits_of, rng

from glasshouse.access import QueryAccess
from glasshouse.attacks import ATTACKS
from glasshouse.attacks.attack import shadow_kinds
from glasshouse.attacks.membership.bavaria import BaVarIA
from glasshouse.attacks.membership.lira import LiRA
from glasshouse.attacks.membership.shadowed import ShadowAttack
from glasshouse.attacks.membership.stacked import Stacked
from glasshouse.auditing.adapting import adaptive_forms, changes_training
from glasshouse.auditing.battery import informed_attacks
from glasshouse.auditing.examine import examine
from glasshouse.auditing.setting import EXAMPLE, make_setting
from glasshouse.auditing.shadowing import ready
from glasshouse.defences import make_defences
from glasshouse.federation.shadows import Answers, Shadows
from glasshouse.measures.membership import auc, balanced_accuracy
from glasshouse.verdicts.informed import uninformed

SHADOWED = [name for name in ATTACKS if isinstance(ATTACKS.make(name), ShadowAttack)]


def test_every_attack_that_asks_for_shadow_models_has_an_adaptive_form():
    asking = [name for name in ATTACKS if shadow_kinds(ATTACKS.make(name))]
    assert asking == SHADOWED
    assert len(SHADOWED) >= 12
    forms = adaptive_forms(SHADOWED, "clipping(norm=1.0)")
    assert [uninformed(form) for form in forms] == SHADOWED
    for form in forms:
        kinds = shadow_kinds(ATTACKS.make(form))
        assert all(kind == f"defended_{name}" for name, kind in kinds.items())
    assert adaptive_forms(forms, "clipping(norm=1.0)") == []


def test_no_shadow_model_is_trained_anew_where_the_defence_leaves_the_model_as_it_is():
    for defence in ("none", "secure-aggregation", "vet"):
        assert adaptive_forms(SHADOWED, defence) == []
    for defence in ("gaussian-noise(std=0.1)", "pruning(fraction=0.9)", "weight-decay", "mix-up"):
        assert changes_training(make_defences(defence))


def test_an_audit_runs_adaptive_forms_unless_it_says_otherwise():
    assert EXAMPLE.audit.adaptive
    for defence in EXAMPLE.audit.defences:
        informed = {uninformed(form) for form in informed_attacks(EXAMPLE, defence)}
        assert informed >= {"mia-bad", "lira", "rmia", "bavaria", "stacked"}
    plain = make_setting({"audit": {"adaptive": False}})
    assert informed_attacks(plain, "pruning(fraction=0.9)") == []


def made_up(images, auxiliary, named, count=4):
    """Shadow models that answer at random, and are described as `named`."""
    draw = np.random.default_rng(len(named))

    def answers(about, inside):
        logits = np.float32(draw.normal(size=(count, len(about), about.classes)))
        return Answers(about, logits, inside, ~inside)

    half = np.stack([draw.permutation(len(auxiliary)) < len(auxiliary) // 2 for _ in range(count)])
    return Shadows(
        answers(auxiliary, half), answers(images, np.zeros((count, len(images)), dtype=bool)), named
    )


def shadowed_case(engine):
    """A defended case, and the kinds of shadow models that it was asked for, in order."""
    case, asked = finished(engine, defence="clipping(norm=0.1)"), []

    def source(kind):
        asked.append(kind)
        return made_up(case.truth.candidates, case.auxiliary, f"4 made-up {kind}")

    return dataclasses.replace(case, shadows=source), asked


@pytest.mark.parametrize(
    "name", ["lira", "rmia", "bavaria", "stacked", "mia-bad(batch_size=2)", "shokri", "set-llr(batch_size=2)"]
)
def test_the_adaptive_form_gets_the_shadows_under_the_defence_and_the_plain_one_does_not(engine, name):
    case, asked = shadowed_case(engine)
    (adaptive,) = adaptive_forms([name], "clipping(norm=0.1)")
    for spec, kind in ((name, "shadows"), (adaptive, "defended_shadows")):
        asked.clear()
        examination = examine(case, spec, QueryAccess)
        assert examination.reason is None
        assert asked == [kind]
        assert f"4 made-up {kind}" in examination.granted


def test_shadows_travel_to_a_worker_under_the_name_they_are_asked_for(engine):
    case, asked = shadowed_case(engine)
    travelling = ready(case.shadows, ["shadows", "defended_shadows"])
    assert asked == ["shadows", "defended_shadows"]
    assert travelling("defended_shadows").described == "4 made-up defended_shadows"


def test_what_stacked_returns_does_not_depend_on_who_was_a_member(engine):
    case, _ = shadowed_case(engine)
    shuffled = np.random.default_rng(0).permutation(case.truth.holder)
    other = dataclasses.replace(case, truth=dataclasses.replace(case.truth, holder=shuffled))
    first, second = (examine(each, "stacked", QueryAccess).evidence for each in (case, other))
    assert (shuffled != case.truth.holder).any()
    np.testing.assert_array_equal(first.scores, second.scores)
    np.testing.assert_array_equal(first.decisions, second.decisions)


def flattened(seed=0, count=600, shadows=4):
    """A target whose defence shrinks log-odds to a tenth and moves them, record by record, as it trains.

    Returns access, what is known with shadow models of a plain training and of one under the defence, and
    who is a member.
    """
    draw = np.random.default_rng(seed)
    member = draw.permutation(count) < count // 2
    inside = np.stack([draw.permutation(count) < count // 2 for _ in range(shadows)])
    hard, aux_hard, moved, aux_moved = 3 * draw.normal(size=(4, count))

    def answers(hard, moved, trained, models, defended):
        odds = hard + 2 * trained + draw.normal(size=(models, count))
        return 0.1 * odds - moved if defended else odds

    observed = [answers(*each, 1, True)[0] for each in ((hard, moved, member), (aux_hard, aux_moved, False))]
    known = [
        knowing(
            answers(aux_hard, aux_moved, inside, shadows, defended),
            inside,
            answers(hard, moved, False, shadows, defended),
            np.zeros_like(inside),
        )
        for defended in (False, True)
    ]
    return answering(logits_of(np.concatenate(observed), 1)), *known, member


@pytest.mark.parametrize("attack", [LiRA, BaVarIA, Stacked])  # `rmia` adds a constant of its own
def test_a_defence_that_plain_shadows_miss_does_not_stop_shadows_under_it(attack):
    access, plain, defended, member = flattened()
    missed = attack().run(access, plain, rng())
    caught = attack(adaptive=True).run(access, defended, rng())
    assert auc(missed.scores, member).low < 0.5
    assert auc(caught.scores, member).low > 0.6
    assert balanced_accuracy(caught.decisions, member).low > 0.6
