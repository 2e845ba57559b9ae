"""The command `glasshouse vet`."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated

import typer

from glasshouse.command_options import tell_verdict
from glasshouse.errors import BadInput


def vet(
    weights: Annotated[Path, typer.Argument(help="The received weights: .safetensors or .pt.")],
    model: Annotated[str, typer.Option(help="Name of the zoo or package.module:factory.")],
    data: Annotated[
        str | None, typer.Option(help="Your data: they give shape and classes, and are tried beside noise.")
    ] = None,
    shape: Annotated[str | None, typer.Option(help="Or the shape of an image, like 1x28x28.")] = None,
    classes: Annotated[int, typer.Option(help="Number of classes, with --shape.")] = 10,
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
) -> None:
    """Is this received model crafted to leak? Exit code 0: it looks honest; 1: it does not.

    Other exit codes are no verdict. 2: something given cannot be used; 3: a fault of Glasshouse.

    Examples:

        glasshouse vet received.safetensors --model cnn --data cifar10

        glasshouse vet now.pt --model mlp --shape 1x28x28 --classes 10 --before last.pt
    """
    with _no_exit_but_ours():
        from glasshouse.registry import newly_imported
        from glasshouse.vetting.files import read_shape, verdict, vet_file

        if (data is None) == (shape is None):
            raise BadInput("give either --data or --shape, so that the model can be built")
        if data is not None:
            from glasshouse.data.sources import load

            local = load(data).train
            size, classes, images = local.shape, local.classes, local.x
        else:
            size, images = read_shape(str(shape)), None
        past, peers = before or (), peer_digest or ()
        vetting = vet_file(weights, model, size, classes, before=past, peers=peers, images=images, seed=seed)
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
