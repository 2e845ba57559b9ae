"""How far a model's answers are from their targets."""

import torch.nn.functional as F
from torch import Tensor


def divergence(target: Tensor, logits: Tensor) -> Tensor:
    """KL(target || softmax(logits)), the mean over rows, for probabilities and logits of (N, classes)."""
    return F.kl_div(logits.log_softmax(1), target, reduction="batchmean")
