"""The command `glasshouse vet`."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated

import typer

from glasshouse.command_options import tell_verdict
from glasshouse.errors import BadInput


def vet(
    weights: Annotated[
        Path | None, typer.Argument(help="The received weights: .safetensors or .pt.", show_default=False)
    ] = None,
    model: Annotated[
        str | None,
        typer.Option(help="The agreed network: a name of the zoo or package.module:factory."),
    ] = None,
    data: Annotated[
        str | None, typer.Option(help="Your data: they give shape and classes, and are tried beside noise.")
    ] = None,
    shape: Annotated[str | None, typer.Option(help="Or the shape of an image, like 1x28x28.")] = None,
    classes: Annotated[
        int | None,
        typer.Option(
            help="Number of classes: with --data as the labels suggest, with --shape 10.", show_default=False
        ),
    ] = None,
    train: Annotated[
        list[str] | None,
        typer.Option(
            metavar="PATTERN",
            help="Tensors that are trained and sent, where not all are, as of model.train; repeat it.",
        ),
    ] = None,
    before: Annotated[
        list[Path] | None, typer.Option(help="Weights of an earlier round; repeat it, oldest first.")
    ] = None,
    peer_digest: Annotated[
        list[str] | None, typer.Option(help="Digest that another client got for this round; repeat it.")
    ] = None,
    seed: Annotated[
        int | None, typer.Option(min=0, help="Seed of the noise to try; from the weights by default.")
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="The verdict for machines.")] = False,
    demo: Annotated[
        bool, typer.Option("--demo", help="Make an honest and two crafted models, and vet them.")
    ] = False,
    out: Annotated[
        Path | None, typer.Option(help="Folder for the files of --demo; vet-demo by default.")
    ] = None,
) -> None:
    """Is this received model crafted to leak? Exit code 0: it looks honest; 1: do not train it.

    1 also where the file holds another network than you named, or something else than weights.
    Other exit codes are no verdict: 2, something given cannot be used; 3, a fault of Glasshouse.
    Train only after 0.

    Examples:

        glasshouse vet received.safetensors --model cnn --data cifar10

        glasshouse vet now.pt --model mlp --shape 1x28x28 --classes 10 --before last.pt

        glasshouse vet head.safetensors --model my_lab:pretrained --train 'head.*' --data my-images/

        glasshouse vet --demo
    """
    if demo:
        others = (weights, model, data, shape, classes, train, before, peer_digest, seed, as_json or None)
        if any(given is not None for given in others):
            raise BadInput("--demo takes nothing but --out; leave the rest out")
        from glasshouse.vet_demo import FOLDER, demonstrate

        for text in demonstrate(out or FOLDER):
            tell_verdict(text)
        return
    with _no_exit_but_ours():
        from glasshouse.models.signature import check_named

        if weights is None or model is None:
            raise BadInput("give the received weights and --model, or --demo to see what vetting says")
        if out is not None:
            raise BadInput("--out is for --demo; leave it out")
        if (data is None) == (shape is None):
            raise BadInput("give either --data or --shape, so that the model can be built")
        check_named(model)

        from glasshouse.registry import newly_imported
        from glasshouse.vetting.files import read_shape, verdict, vet_file

        if data is not None:
            from glasshouse.data.sources import load

            local = load(data, every_class=False).train
            size, counted, images, labels = local.shape, local.classes, local.x, local.y
            if classes is not None and classes <= (highest := int(labels.max())):
                raise BadInput(
                    f"--classes {classes}: the labels of {data} go up to {highest}; "
                    f"give at least {highest + 1}"
                )
        else:
            size, counted, images, labels = read_shape(str(shape)), 10, None, None
        past, peers = before or (), peer_digest or ()
        vetting = vet_file(
            weights,
            model,
            size,
            counted if classes is None else classes,
            train=train or (),
            guessed=classes is None and data is not None,
            before=past,
            peers=peers,
            images=images,
            labels=labels,
            seed=seed,
        )
        for line in newly_imported():
            typer.echo(f"glasshouse: {line}", err=True)
        if as_json:
            import json
            from dataclasses import asdict

            tell_verdict(json.dumps(asdict(vetting), indent=2))
        else:
            tell_verdict(verdict(vetting))
        raise typer.Exit(1 if vetting.crafted else 0)


@contextmanager
def _no_exit_but_ours() -> Iterator[None]:
    """Take an exit of the user's own code for a crash: exit codes are verdicts here."""
    try:
        yield
    except SystemExit as error:
        raise RuntimeError(f"the model's code left with exit code {error.code}") from error
