"""Shadow models for an audit: what a setting says of them, trained at most once."""

from collections.abc import Iterable
from pathlib import Path

import numpy as np

from glasshouse.attacks.attack import DEFENDED
from glasshouse.auditing.case import ShadowSource
from glasshouse.auditing.experiment import Experiment
from glasshouse.data.partitions import drawn_by_labels
from glasshouse.defences import make_defences
from glasshouse.errors import BadInput, CannotRun, Fault
from glasshouse.federation.shadows import (
    Answers,
    Shadows,
    ShadowSet,
    Training,
    affordable,
    online_sets,
    shadow_sets,
    train_shadows,
)
from glasshouse.federation.strategies import STRATEGIES
from glasshouse.federation.strategies.strategy import Strategy
from glasshouse.learning.engine import Engine
from glasshouse.learning.seeds import derive, numpy_rng
from glasshouse.progress import Progress

FEWEST_AUXILIARY = 10


class Shadowing:
    """Trains shadow models on the auxiliary images, or on the candidates, and keeps their answers."""

    def __init__(self, experiment: Experiment, cache: Path, engine: Engine, progress: Progress) -> None:
        self._experiment = experiment
        self._cache = cache
        self._engine = engine
        self._progress = progress
        self._kept: dict[tuple[str, str, int], Shadows] = {}
        self._auxiliary = len(experiment.auxiliary)
        candidates = experiment.truth.candidates
        assert candidates is not None
        self._pool = experiment.auxiliary.joined(candidates)

    def under(self, defence: str, rounds: int | None = None) -> ShadowSource:
        """The shadows of a target under `defence`, trained when they are asked for: under it, or without."""
        makers = {"shadows": self.offline, "online_shadows": self.online}

        def source(kind: str) -> Shadows:
            plain = kind.removeprefix(DEFENDED)
            return makers[plain](defence if kind != plain else "none", rounds)

        return source

    def offline(self, defence: str, rounds: int | None = None) -> Shadows:
        """Shadows on parts of the auxiliary images; no candidate is among their training data.

        They are trained for as many `rounds` as the target was, if it was stopped early.
        """
        return self._train("offline", defence, rounds)

    def online(self, defence: str, rounds: int | None = None) -> Shadows:
        """Shadows on halves of the candidates, so that half of the shadows saw each of them."""
        return self._train("online", defence, rounds)

    def planned(self, kind: str, defence: str, rounds: int | None = None) -> tuple[Training, list[ShadowSet]]:
        """How the "offline" or "online" shadows are trained, and on what; `CannotRun` if there are none."""
        setting = self._experiment.setting
        count = check_possible(self._experiment, kind, defence)
        rng = numpy_rng(setting.seed, "shadow sets", kind)
        if kind == "offline":
            master, members = np.arange(self._auxiliary), len(self._experiment.split.members)
            sets = shadow_sets(master, members, count, rng)
        else:
            sets = online_sets(np.arange(self._auxiliary, len(self._pool)), count, rng)
        training = self._training(defence, rounds or self._rounds(defence))
        seed = derive(setting.seed, "shadows", kind)
        return affordable(training, self._pool, sets, seed), sets

    def _rounds(self, defence: str) -> int:
        return make_defences(defence).rounds(self._experiment.setting.training.rounds)

    def _train(self, kind: str, defence: str, rounds: int | None) -> Shadows:
        key = (kind, defence, rounds or self._rounds(defence))
        if key not in self._kept:
            training, sets = self.planned(*key)
            self._kept[key] = self._shadows(kind, training, self._trained(kind, training, sets), sets)
        return self._kept[key]

    def _trained(self, kind: str, training: Training, sets: list[ShadowSet]) -> Answers:
        seed = derive(self._experiment.setting.seed, "shadows", kind)
        try:
            answers = train_shadows(
                self._experiment.model,
                self._experiment.fresh,
                training,
                self._pool,
                sets,
                engine=self._engine,
                seed=seed,
                cache=self._cache,
                progress=self._progress,
            )
        except Fault:
            raise
        except BadInput as reason:
            size = len(sets[0].train)
            raise CannotRun(f"shadow models cannot be trained on {size} images: {reason}") from reason
        lost = int((~np.isfinite(answers.logits)).any((1, 2)).sum())
        if lost:
            raise CannotRun(f"{lost} of {len(sets)} shadow models answer NaN or infinity; lower training.lr")
        return answers

    def _training(self, defence: str, rounds: int) -> Training:
        """How the target was trained, or the same number of epochs in one place.

        The server of shadows has no images; fedavg stands in for a strategy that needs them.
        """
        setting = self._experiment.setting
        training, audit = setting.training, setting.audit
        federated = audit.shadow_training == "like-target"
        strategy: Strategy = STRATEGIES.make(training.strategy)
        divided = drawn_by_labels(self._experiment.split.partition)
        return Training(
            recipe=training.recipe(),
            rounds=rounds,
            clients=len(self._experiment.split.clients) if federated else 1,
            fraction=training.fraction if federated else 1.0,
            partition=self._experiment.split.partition if divided and federated else "iid",
            strategy=training.strategy if federated and not strategy.needs_images else "fedavg",
            defences=defence,
        )

    def _shadows(self, kind: str, training: Training, answers: Answers, sets: list[ShadowSet]) -> Shadows:
        source = "auxiliary images" if kind == "offline" else "of the records in question themselves"
        setting = self._experiment.setting
        target = setting.training.strategy
        described = (
            f"{len(sets)} shadow models of the same network and recipe, trained {training.described()}, "
            f"each on {len(sets[0].train)} {source}"
        )
        if setting.audit.shadow_training == "like-target" and training.strategy != target:
            described += f", by fedavg, as no server has the images that {target} needs"
        start = "" if self._experiment.fresh_weights else ", from the target's own first weights"
        if self._experiment.head is not None:
            start = ", from the weights of the target's file with last layers of their own"
        cut = self._auxiliary
        return Shadows(answers.about(slice(cut)), answers.about(slice(cut, None)), described + start)


def check_possible(experiment: Experiment, kind: str, defence: str) -> int:
    """How many shadow models are trained under `defence`; raises `CannotRun` where none can be.

    The `kind` is "offline", of the auxiliary images, or "online", of the candidates.
    """
    audit, auxiliary = experiment.setting.audit, len(experiment.auxiliary)
    if kind == "offline" and auxiliary < FEWEST_AUXILIARY:
        raise CannotRun(
            f"{auxiliary} auxiliary images are too few to train shadow models on; "
            f"set data.auxiliary to {FEWEST_AUXILIARY} or more"
        )
    count = audit.shadows if defence == "none" else min(audit.shadows, audit.adaptive_shadows)
    if not count:
        raise CannotRun("the setting trains no shadow models (audit.shadows = 0)")
    return count


def ready(source: ShadowSource, kinds: Iterable[str]) -> ShadowSource:
    """The same shadows, trained now and not when they are asked for, so that they can travel to a worker."""
    trained: dict[str, Shadows | str] = {}
    for kind in kinds:
        try:
            trained[kind] = source(kind)
        except CannotRun as reason:
            trained[kind] = str(reason)

    def shadows(kind: str) -> Shadows:
        answer = trained[kind]
        if isinstance(answer, str):
            raise CannotRun(answer)
        return answer

    return shadows
