"""Parts of a network that everybody has and nobody trains: they stay as they are and are never sent.

Each layer that holds such tensors says so of itself, so that copies, and networks built around it, know it.
A layer whose `requires_grad` is off without that is sent like any other: it just does not learn.
"""

from collections.abc import Collection, Iterator, Sequence
from fnmatch import fnmatchcase

from torch import Tensor, nn
from torch.nn.modules.batchnorm import _NormBase

from glasshouse.errors import BadInput, quoted

MARK = "frozen_tensors"
"""The attribute of a layer that names those of its own tensors that are frozen."""


def freeze(model: nn.Module, train: Sequence[str] = ()) -> None:
    """Freeze the parameters whose `requires_grad` is off; with patterns `train`, all but those they match.

    A norm that holds none that is trained, or lies in a part that holds none, stays in eval mode from here
    on: it goes by its running statistics, which are frozen, too. Changes `model`.
    """
    if train:
        _choose(model, train)
    if not all(parameter.requires_grad for parameter in model.parameters()):
        _mark(model, trained=True)


def exchanged(model: nn.Module) -> dict[str, nn.Parameter]:
    """By name, the parameters that are trained and sent."""
    frozen = set(frozen_names(model))
    return {name: parameter for name, parameter in model.named_parameters() if name not in frozen}


def frozen_names(model: nn.Module) -> Iterator[str]:
    """The names of all parameters and buffers that are frozen."""
    for place, layer in model.named_modules():
        for name in sorted(getattr(layer, MARK, ())):
            yield f"{place}.{name}".lstrip(".")


def frozen_tensors(model: nn.Module, but: Collection[str] = ()) -> list[Tensor]:
    """The parameters and saved buffers that are frozen, in the order of their names; `but` are left out."""
    state = model.state_dict()
    return [state[name] for name in sorted(frozen_names(model)) if name in state and name not in but]


def stays_in_eval(layer: nn.Module) -> bool:
    """Whether `layer` is a norm that is frozen, statistics and all."""
    return vars(layer).get("train") is _not_training


def _choose(model: nn.Module, train: Sequence[str]) -> None:
    """Have those parameters trained of which a name, tied ones have several, matches one of the patterns."""
    named = list(model.named_parameters(remove_duplicate=False))
    for pattern in train:
        if not any(fnmatchcase(name, pattern) for name, _ in named):
            names = [name for name, _ in named]
            shown = ", ".join(names if len(names) < 7 else [*names[:3], "...", *names[-3:]])
            raise BadInput(
                f"model.train = {quoted(pattern)} matches no parameter of the model; they are {shown}"
            )
    chosen = {id(one) for name, one in named if any(fnmatchcase(name, pattern) for pattern in train)}
    for _, parameter in named:
        parameter.requires_grad_(id(parameter) in chosen)


def _mark(layer: nn.Module, *, trained: bool) -> None:
    """Mark what is frozen in `layer`, which lies in a part of the network of which something is `trained`."""
    inside = [parameter.requires_grad for parameter in layer.parameters()]
    trained = any(inside) if inside else trained
    for child in layer.children():
        _mark(child, trained=trained)
    frozen = [name for name, one in layer.named_parameters(recurse=False) if not one.requires_grad]
    if not trained:
        frozen += [name for name, _ in layer.named_buffers(recurse=False)]
        if isinstance(layer, _NormBase):
            layer.eval()
            layer.train = _not_training  # type: ignore[method-assign, assignment]
    if frozen:
        setattr(layer, MARK, frozenset(frozen))


def _not_training(mode: bool = True) -> None:
    """What a frozen norm does when the network around it is put into train mode, or into eval mode."""
