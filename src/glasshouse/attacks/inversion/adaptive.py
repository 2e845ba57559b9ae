"""What an attacker makes of an update who knows the clients' defences, but not what these drew at random.

- **Pruning** leaves zeros, so the update itself says which entries were not sent: they do not count.
- **Noise** has a known law. Of a tensor of n entries, with energy |g|^2, about n * variance is noise; the
  rest, if any, is signal. The tensor counts by  signal / (signal + noise),  Wiener's weight.
- **Transformation policies** do one of a few known things to an image: see `undoing`.

Clipping only scales an update, which the angle between gradients does not see.
"""

from collections.abc import Mapping
from dataclasses import dataclass, replace

from torch import Tensor

from glasshouse.attacks.inversion.target import Target
from glasshouse.attacks.inversion.updates import AttackedUpdate
from glasshouse.defences.defence import Defence, Stack
from glasshouse.defences.perturbation import GaussianNoise, LaplacianNoise, Pruning
from glasshouse.defences.policies.defence import TransformationPolicy
from glasshouse.defences.policies.draws import Draw, possible_draws
from glasshouse.defences.privacy import DifferentialPrivacy
from glasshouse.learning.layout import Layout
from glasshouse.models.freezing import exchanged

NOISE = (GaussianNoise, LaplacianNoise)
"""What clients may add to their own updates."""

USEFUL = (TransformationPolicy, Pruning, *NOISE, DifferentialPrivacy)
"""The defences that it helps an inversion to know."""

MOST_DRAWS = 64
"""As many cases of a policy are tried, the likeliest first."""

NOT_UNDONE = "the crops and flips before the policy are not undone"
HIDDEN = "noise hides which entries were pruned"
DROWNED = "no tensor stands out of the noise, and all count alike"


@dataclass(frozen=True, eq=False)
class Adapted:
    """A target as somebody reads it who knows the defences, and what a policy may have done to each image.

    There are no `draws` where no policy is in force. `note` says what was used, or could not be.
    """

    target: Target
    draws: tuple[Draw, ...] = ()
    note: str | None = None


def worth_knowing(stack: Stack) -> bool:
    """Whether an inversion can make use of what is known about these defences."""
    return any(isinstance(defence, USEFUL) for defence in stack.defences)


def adapt(target: Target, update: AttackedUpdate, stack: Stack) -> Adapted:
    """`target`, which is made of `update`, for somebody who knows the clients' defences."""
    notes = []
    known = sent_entries(update.delta, target.layout, stack)
    if known is not None:
        target = replace(target, known=known)
        notes.append(f"{int(known[: target.layout.trainable].sum())} entries that were sent are matched")
    elif any(isinstance(defence, Pruning) for defence in stack.defences):
        notes.append(HIDDEN)
    variance = gradient_noise(update, stack)
    if variance:
        trust = signal_weights(target, variance)
        heard = sum(weight > 0 for weight in trust.values())
        target = replace(target, trust=trust if heard else None)
        notes.append(f"{heard} of {len(trust)} tensors stand out of the noise" if heard else DROWNED)
    policies = [defence for defence in stack.defences if isinstance(defence, TransformationPolicy)]
    if any(policy.crop_and_flip for policy in policies):
        notes.append(NOT_UNDONE)
    return Adapted(target, draws_of(stack, target.shape), "; ".join(notes) or None)


def sent_entries(delta: Tensor, layout: Layout, stack: Stack) -> Tensor | None:
    """Which entries of an update were sent, bool of shape (P,); null where nothing tells.

    Noise after the pruning hides it. A tensor with more zeros than were pruned had them before: pruning,
    which takes the smallest entries first, then took nothing else, and all of them are known.
    """
    last = _last(stack, (Pruning,))
    if last < 0 or last < _last(stack, NOISE):
        return None
    fraction = max(defence.fraction for defence in stack.defences if isinstance(defence, Pruning))
    sent = delta != 0
    sent[layout.trainable :] = True
    for entries in layout.named(sent).values():
        if entries.numel() - int(entries.sum()) > int(fraction * entries.numel()):
            entries.fill_(True)
    return sent


def gradient_noise(update: AttackedUpdate, stack: Stack) -> float:
    """The variance of the noise on each entry of `update.gradient()`.

    A client's update is minus its rate times a gradient. In the mean of several clients, each with noise of
    its own, that of a client with the share s of the samples has s^2 times the variance. Differential privacy
    adds its own to the mean, and to nothing that a curious server sees. Clipping after the noise makes it
    smaller by a factor that nobody knows, which is taken to be 1.
    """
    recipe, samples = update.protocol.recipe, update.samples
    rate = sum(size * recipe.effective_rate(size) for size in update.sizes) / samples
    shares = sum((size / samples) ** 2 for size in update.sizes)
    variance = shares * sum(map(_variance, stack.defences))
    if len(update.clients) > 1:
        private = [defence for defence in stack.defences if isinstance(defence, DifferentialPrivacy)]
        variance += sum(defence.std**2 for defence in private)
    return variance / rate**2


def signal_weights(target: Target, variance: float) -> Mapping[str, float]:
    """Wiener's weight of each parameter's tensor under noise of this variance, in [0, 1].

    Below the noise it is 0. Only entries that are known count.
    """
    gradients = target.layout.named(target.gradient)
    known = None if target.known is None else target.layout.named(target.known)
    weights = {}
    for name in exchanged(target.network):
        entries = gradients[name] if known is None else gradients[name][known[name]]
        noise = entries.numel() * variance
        signal = max(0.0, float(entries.double().square().sum()) - noise)
        weights[name] = signal / (signal + noise) if entries.numel() else 0.0
    return weights


def draws_of(stack: Stack, shape: tuple[int, int, int]) -> tuple[Draw, ...]:
    """What the policies among the defences may have done, together, to an image of `shape`."""
    draws: dict[Draw, float] = {}
    for defence in stack.defences:
        if isinstance(defence, TransformationPolicy):
            more = possible_draws(defence.policy_for(shape), shape)
            before = draws or {Draw(()): 1.0}
            draws = {
                Draw(first.steps + second.steps): chance * other
                for first, chance in before.items()
                for second, other in more.items()
            }
    return tuple(sorted(draws, key=lambda draw: -draws[draw])[:MOST_DRAWS])


def _last(stack: Stack, kinds: tuple[type[Defence], ...]) -> int:
    """The place of the last defence of one of these kinds; -1 where there is none."""
    places = [place for place, defence in enumerate(stack.defences) if isinstance(defence, kinds)]
    return max(places, default=-1)


def _variance(defence: Defence) -> float:
    """That of the noise which a defence adds to each entry of an update."""
    if isinstance(defence, GaussianNoise):
        return defence.std**2
    return 2 * defence.scale**2 if isinstance(defence, LaplacianNoise) else 0.0
