"""The attack model: a binary classifier from what models answer to whether they were trained on it."""

import warnings
from typing import Literal

import numpy as np
import torch
from sklearn.exceptions import ConvergenceWarning
from sklearn.linear_model import LogisticRegression
from sklearn.neural_network import MLPClassifier
from sklearn.preprocessing import StandardScaler

Kind = Literal["network", "logistic"]
EPOCHS, PATIENCE = 150, 5
ENOUGH_TO_WATCH = 5000
"""With fewer records a held-out tenth is too small to say when to stop."""


class Classifier:
    """Fitted on features, shape (n, d), and labels, shape (n,); `log_odds` are above 0 for members.

    `network` is the MLP d-32-64-1 of MIA-BAD, trained with Adam for 150 epochs, or until five in a row bring
    nothing where there are records enough to tell; `logistic` is logistic regression.
    """

    def __init__(self, kind: Kind, features: np.ndarray, member: np.ndarray, rng: torch.Generator) -> None:
        seed = int(torch.randint(2**31, (1,), generator=rng))
        self._scaler = StandardScaler().fit(features)
        scaled = self._scaler.transform(features)
        if kind == "logistic":
            self._model = LogisticRegression(max_iter=1000).fit(scaled, member)
            return
        many = len(member) >= ENOUGH_TO_WATCH
        self._model = MLPClassifier(
            (32, 64),
            batch_size=min(len(member), max(32, min(1024, len(member) // 8))),
            learning_rate_init=0.005,
            max_iter=EPOCHS,
            early_stopping=many,
            n_iter_no_change=PATIENCE if many else EPOCHS,
            random_state=seed,
        )
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", ConvergenceWarning)  # 150 epochs are what was asked for
            warnings.filterwarnings("error", "Training interrupted by user")  # else it goes on half-trained
            try:
                self._model.fit(scaled, member)
            except UserWarning as interruption:
                raise KeyboardInterrupt from interruption

    def log_odds(self, features: np.ndarray) -> np.ndarray:
        """The log-odds of membership, shape (n,), without the rounding of probabilities near 1."""
        scaled = self._scaler.transform(features)
        if isinstance(self._model, LogisticRegression):
            odds: np.ndarray = self._model.decision_function(scaled)
            return odds
        *hidden, last = zip(self._model.coefs_, self._model.intercepts_)
        for weight, bias in hidden:
            scaled = np.maximum(scaled @ weight + bias, 0)
        return np.asarray((scaled @ last[0] + last[1])[:, 0])


def balanced(
    inside: np.ndarray, outside: np.ndarray, rng: np.random.Generator
) -> tuple[np.ndarray, np.ndarray]:
    """As many features of one side as of the other, shape (2n, d), with labels, shape (2n,)."""
    count = min(len(inside), len(outside))
    drawn = [side[rng.permutation(len(side))[:count]] for side in (inside, outside)]
    return np.concatenate(drawn), np.repeat([True, False], count)
