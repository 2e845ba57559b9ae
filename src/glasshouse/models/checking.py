"""Whether a user's model can be trained, attacked, copied and sent to a worker, seen before any of that."""

import pickle
from collections.abc import Iterator
from copy import deepcopy

import cloudpickle
import torch
from torch import Tensor, nn
from torch.nn.parameter import is_lazy

from glasshouse.errors import BadInput, named, quoted
from glasshouse.models.outputs import give_logits, logits_of
from glasshouse.models.shapes import Shape


def checked_copy(model: nn.Module, shape: Shape, classes: int) -> nn.Module:
    """A copy of a user's `model`, which can be trained in workers and answers with rows of finite logits."""
    spec = type(model).__name__
    if not isinstance(model, nn.Module):
        raise BadInput(f"model {quoted(model)} is of type {spec}; hand over a torch.nn.Module, or its name")
    _check_state(model, spec)
    copy = _copied(model, spec)
    make_classifier(copy, spec, shape, classes)
    check_travels(copy, spec)
    return copy


def make_classifier(model: nn.Module, spec: str, shape: Shape, classes: int) -> None:
    """Refuse a model that does not turn black images into rows of finite logits, or cannot be trained.

    One that answers with an object that holds them answers with them alone from here on.
    """
    _check_state(model, spec)
    copy = _copied(model, spec)
    passes = [_check_pass(copy, spec, shape, classes, 2, training=False)]
    if not any(parameter.requires_grad for parameter in copy.parameters()):
        raise BadInput(f"model {quoted(spec)} has no parameters to train; give it some, or unfreeze them")
    passes += [_check_pass(copy, spec, shape, classes, count, training=True) for count in (2, 3)]
    _copied(copy, spec)
    if not all(passes):
        give_logits(model)


def _check_pass(
    model: nn.Module, spec: str, shape: Shape, classes: int, count: int, *, training: bool
) -> bool:
    """Check the outputs for `count` black images and, in training, that gradients reach the parameters.

    Says whether they are the logits themselves.
    """
    named_model = f"model {quoted(spec)}"
    x = torch.zeros(count, *shape)
    version = x._version
    try:
        model.train(training)
        answer = model(x)
    except (Exception, SystemExit) as error:
        raise BadInput(
            f"{named_model} cannot take a batch of shape {(count, *shape)}: {named(error)}; "
            "let its factory take (shape, classes) and build to that"
        ) from error
    logits = logits_of(answer)
    if not isinstance(logits, Tensor):
        raise BadInput(
            f"{named_model} returns {type(logits).__name__}; return the logits as one tensor, "
            "or an object that has them as .logits"
        )
    if logits.shape != (count, classes):
        raise BadInput(
            f"{named_model} returns shape {tuple(logits.shape)} for {count} images of {classes} classes; "
            f"return logits of shape {(count, classes)}"
        )
    if logits.dtype != torch.float32:
        raise BadInput(f"{named_model} returns {logits.dtype}; return logits.float()")
    if not logits.isfinite().all():
        raise BadInput(f"{named_model} returns NaN or infinite logits for black images; check its weights")
    if x._version != version or x.any():
        raise BadInput(f"{named_model} changes the images it is given; work on x.clone(), or not in place")
    if training:
        _check_gradients(model, named_model, logits)
    elif any(module.training for module in model.modules()):
        raise BadInput(f"{named_model} goes on training after eval(); let eval() reach every layer")
    return logits is answer


def _check_gradients(model: nn.Module, named_model: str, logits: Tensor) -> None:
    if not logits.requires_grad:
        raise BadInput(f"{named_model} returns logits without a gradient; do not detach them")
    try:
        logits.sum().backward()
    except (Exception, SystemExit) as error:
        raise BadInput(
            f"{named_model} cannot be trained: {named(error)}; repair its backward pass"
        ) from error
    for name, parameter in model.named_parameters():
        if parameter.grad is not None and parameter.grad.layout is not torch.strided:
            raise BadInput(f"{named_model}: {name} has a sparse gradient; build its layer with sparse=False")


def _check_state(model: nn.Module, spec: str) -> None:
    """Refuse a state that is not made of dense 32-bit numbers on the CPU, each in its own place in memory.

    A tensor under several names is fine: tied weights are trained, averaged and sent once.
    """
    places: dict[int, str] = {}
    for kind, name, tensor in _state(model, spec):
        fault = _fault(kind, tensor)
        if fault:
            raise BadInput(f"model {quoted(spec)}: {kind} {name} {fault}")
        twin = places.setdefault(tensor.data_ptr(), name) if tensor.numel() else name
        if twin != name:
            raise BadInput(
                f"model {quoted(spec)}: {twin} and {name} share their memory, which in copies of the model "
                "they would not; tie weights by assigning one parameter to both layers"
            )


def _state(model: nn.Module, spec: str) -> Iterator[tuple[str, str, Tensor]]:
    """Parameters, then the buffers that are saved, each with its kind and name."""
    for name, parameter in model.named_parameters():
        yield "parameter", name, parameter
    saved = model.state_dict()
    for name, buffer in model.named_buffers():
        if name in saved:
            yield "buffer", name, buffer
    for name, value in saved.items():
        if not isinstance(value, Tensor):
            raise BadInput(
                f"model {quoted(spec)}: its state dict holds {name}, a {type(value).__name__}; "
                "keep what is no tensor out of the state"
            )


def _fault(kind: str, tensor: Tensor) -> str | None:
    """What is wrong with a tensor of the state, with a remedy; nothing where it can travel."""
    if is_lazy(tensor):
        return "has no shape yet; run a batch through the model once before you hand it over"
    if tensor.device.type != "cpu":
        return f"lies on the device {tensor.device}; build the model on the CPU"
    if tensor.is_inference():
        return "was made in inference mode; build the model outside of it"
    if tensor.layout is not torch.strided or tensor.is_nested or tensor.is_quantized:
        return "is sparse, nested or quantised; store it as a dense tensor"
    if kind == "parameter" and not tensor.is_floating_point():
        return f"is {tensor.dtype}; store it as torch.float32, a complex one as its real and imaginary parts"
    if tensor.is_floating_point() and tensor.dtype != torch.float32:
        return f"is {tensor.dtype}, and training is in torch.float32; hand over model.float()"
    if tensor.is_complex():
        return f"is {tensor.dtype}; register it with persistent=False, as it is no part of what is sent"
    if any(stride == 0 < size - 1 for stride, size in zip(tensor.stride(), tensor.shape)):
        return "is an expanded view of fewer numbers; store a clone of it"
    return None


def _copied(model: nn.Module, spec: str) -> nn.Module:
    """A copy of `model` that shares nothing with it; refuses one that cannot be copied."""
    try:
        copy = deepcopy(model)
    except (Exception, SystemExit) as error:
        raise BadInput(
            f"model {quoted(spec)} cannot be copied ({named(error)}); keep nothing in it but layers, tensors "
            "and plain values, and no result of a forward pass"
        ) from error
    theirs = {parameter.data_ptr() for parameter in copy.parameters() if parameter.numel()}
    for name, parameter in model.named_parameters():
        if parameter.data_ptr() in theirs:
            raise BadInput(
                f"model {quoted(spec)}: its copy shares the parameter {name}; let deepcopy copy every tensor"
            )
    check_alike(copy, model, f"model {quoted(spec)}: its copy")
    return copy


def check_travels(model: nn.Module, spec: str) -> None:
    """Refuse a model that does not come back whole from another process."""
    try:
        returned = pickle.loads(cloudpickle.dumps(model))
    except (Exception, SystemExit) as error:
        raise BadInput(
            f"model {quoted(spec)} cannot be sent to a worker ({named(error)}); keep nothing in it that "
            "pickle refuses: parametrised weights, locks, open files, generators"
        ) from error
    check_alike(returned, model, f"model {quoted(spec)}: what a worker receives of it")


def check_alike(model: nn.Module, first: nn.Module, what: str) -> None:
    """Refuse a `model` whose state has other names, shapes or types than that of `first`."""
    differing = sorted(_signature(model) ^ _signature(first))
    if differing:
        raise BadInput(
            f"{what} differs in {differing[0][0]} from the model at first; "
            "let the architecture depend on nothing but the shape and the classes"
        )


def _signature(model: nn.Module) -> set[tuple[str, tuple[int, ...], str]]:
    return {(name, tuple(tensor.shape), str(tensor.dtype)) for name, tensor in model.state_dict().items()}
