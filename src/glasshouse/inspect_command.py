"""The command `glasshouse inspect`."""

from pathlib import Path
from typing import Annotated

import typer

from glasshouse.command_options import EngineOption, Out, Quiet, Seed, Workers, resumable
from glasshouse.models.signature import check_named


def inspect(
    update: Annotated[
        Path, typer.Argument(help="A gradient, a delta or the weights after: .safetensors or .pt.")
    ],
    before: Annotated[Path, typer.Option(help="The weights that the client received.")],
    model: Annotated[str, typer.Option(help="Name of the zoo or package.module:factory.")],
    shape: Annotated[
        str | None, typer.Option(help="Shape of an image, like 1x28x28; that of --truth by default.")
    ] = None,
    classes: Annotated[int, typer.Option(help="Number of classes.")] = 10,
    kind: Annotated[
        str, typer.Option(help="gradient, delta, after; auto lets the file and its numbers tell.")
    ] = "auto",
    samples: Annotated[
        int | None, typer.Option(help="Images behind it, if you know; else they are counted.")
    ] = None,
    lr: Annotated[float | None, typer.Option(help="The client's learning rate, if you know it.")] = None,
    epochs: Annotated[
        int | None, typer.Option(help="Its local epochs; one step on all images by default.")
    ] = None,
    batch_size: Annotated[int | None, typer.Option(help="Its batch size.")] = None,
    mode: Annotated[
        str, typer.Option(help="train, eval; auto goes by batch norm statistics in the file, else train.")
    ] = "auto",
    truth: Annotated[
        str | None, typer.Option(help="The images behind it, to judge what was found: an .npz of x and y.")
    ] = None,
    auxiliary: Annotated[
        str | None, typer.Option(help="Like images that the server may have, an .npz of x and y.")
    ] = None,
    seconds: Annotated[float, typer.Option(help="Time for the search, where no closed form applies.")] = 30.0,
    out: Out = None,
    seed: Seed = None,
    workers: Workers = None,
    engine: EngineOption = "processes",
    quiet: Quiet = False,
) -> None:
    """What does this recorded update give away? Which labels, how many images, and the images themselves.

    Without --truth nothing is judged: the page shows what was found, and says how well it explains the update
    and what was not tried.

    Examples:

        glasshouse inspect update.safetensors --before sent.safetensors --model lenet --shape 1x28x28

        glasshouse inspect u.pt --before b.pt --model my_models:Network --truth images.npz --seconds 60
    """
    check_named(model)
    with resumable():
        from glasshouse.api import inspect_update
        from glasshouse.vetting.files import read_shape

        inspection = inspect_update(
            update,
            before,
            model,
            shape=None if shape is None else read_shape(shape),
            classes=classes,
            kind=kind,
            samples=samples,
            lr=lr,
            epochs=epochs,
            batch_size=batch_size,
            mode=mode,
            truth=truth,
            auxiliary=auxiliary,
            seconds=seconds,
            seed=seed or 0,
            out=out,
            workers=workers,
            engine=engine,
            quiet=quiet,
        )
    if not quiet:
        statement = inspection.statement
        typer.echo(statement.answer)
        for line in statement.found:
            typer.echo(f"  {line}")
        typer.echo("not tried:")
        for line in statement.untried:
            typer.echo(f"  {line}")
    typer.echo(inspection.folder)
