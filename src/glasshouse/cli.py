"""The commands. Nothing heavy is imported before a command needs it."""

import os
import sys
import traceback
import warnings
from pathlib import Path
from typing import Annotated, Any

import typer

from glasshouse.command_options import (
    EngineOption,
    Out,
    Quiet,
    Seed,
    Workers,
    overridden,
    refuse_contradictions,
    resumable,
    tell_decision,
)
from glasshouse.errors import BadInput, disk_failed, fault_of, named, one_line, one_line_warning
from glasshouse.gate_command import gate
from glasshouse.inspect_command import inspect
from glasshouse.record_command import audit_folder
from glasshouse.search_command import search_policy
from glasshouse.vet_command import vet

app = typer.Typer(
    help="Measure what a federated model gives away: who can learn what about the training data, how sure we "
    "are, and which defence is worth its cost.",
    epilog="Start with `glasshouse audit`: a complete audit of an embedded example.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    rich_markup_mode="markdown",
)


LONGEST_LINE = 2000
"""As many characters has an error's line at most."""


def _show_version(wanted: bool) -> None:
    if wanted:
        from importlib import metadata

        typer.echo(f"glasshouse {metadata.version('glasshouse')}")
        raise typer.Exit


@app.callback()
def options(
    version: Annotated[
        bool, typer.Option("--version", callback=_show_version, is_eager=True, help="Print the version.")
    ] = False,
) -> None:
    """Options of all commands."""


@app.command()
def audit(
    config: Annotated[
        Path | None,
        typer.Argument(help="Configuration, `glasshouse init` writes one; or a folder of recorded rounds."),
    ] = None,
    data: Annotated[
        str | None, typer.Option(help="Named set, folder, .npz, hf:name or package.module:function.")
    ] = None,
    model: Annotated[str | None, typer.Option(help="Name of the zoo or package.module:factory.")] = None,
    weights: Annotated[str | None, typer.Option(help="Weights to start from: .safetensors or .pt.")] = None,
    members: Annotated[
        str | None, typer.Option(help="Audit a finished model: what it was trained on, an .npz of x and y.")
    ] = None,
    nonmembers: Annotated[
        str | None, typer.Option(help="Like images that it was not trained on, an .npz of x and y.")
    ] = None,
    auxiliary: Annotated[
        str | None, typer.Option(help="Like images that the adversary may have, an .npz of x and y.")
    ] = None,
    defences: Annotated[
        list[str] | None,
        typer.Option(help="all: search a catalogue; none: try none; or a defence to try, repeat it."),
    ] = None,
    out: Out = None,
    seed: Seed = None,
    seeds: Annotated[int, typer.Option(min=1, help="Repeat training and attacks with so many seeds.")] = 1,
    workers: Workers = None,
    engine: EngineOption = "processes",
    quiet: Quiet = False,
    plan: Annotated[
        bool, typer.Option("--plan", help="Only say what would be done, and how long that would take.")
    ] = False,
) -> None:
    """Train a federation, attack it as every adversary could, and write a report.

    Without arguments it audits the embedded example. A run that was stopped continues with the same command.
    The exit code is 1 where a measured bound contradicts the privacy that an accountant promises.

    Examples:

        glasshouse audit

        glasshouse audit --data fashion-mnist --model lenet --out runs/fashion

        glasshouse audit my.toml --plan

        glasshouse audit my.toml --workers 4 --seeds 3

        glasshouse audit --defences all

        glasshouse audit --defences "pruning(fraction=0.9)" --defences "clipping(norm=1.0)+gaussian-noise"

        glasshouse audit --model lenet --weights w.safetensors --members a.npz --nonmembers b.npz

        glasshouse audit rounds/ --members a.npz --nonmembers b.npz
    """
    with resumable():
        from glasshouse.auditing.setting import EXAMPLE, Setting, read_setting
        from glasshouse.naming import refuse_unknown

        if config is not None and config.is_dir():
            options = {"members": members, "nonmembers": nonmembers, "auxiliary": auxiliary}
            audit_folder(
                config,
                {"--data": data, "--weights": weights, "--defences": defences},
                model=model,
                images={name: path for name, path in options.items() if path},
                seed=seed,
                plan=plan,
                running={"seeds": seeds, "out": out, "workers": workers, "engine": engine, "quiet": quiet},
            )
            return

        # What is wrong in a configuration or a name shows before torch is loaded.
        written = read_setting(config) if config else None
        refuse_unknown(overridden(written or Setting(), data, model, weights, seed, defences))

        from glasshouse.api import audit as run_audit
        from glasshouse.api import plan as plan_audit
        from glasshouse.auditing.finished import finished_setting

        finished = members or nonmembers or auxiliary
        if finished and data:
            raise BadInput(f"--data {data} names what to train on; a finished model has --members instead")
        if finished and defences:
            raise BadInput("--defences are trained in, and a finished model is not trained; leave them out")
        default = finished_setting() if finished else Setting() if data or model else EXAMPLE
        setting = overridden(written or default, data, model, weights, seed, defences)
        parts: dict[str, Any] = {"members": members, "nonmembers": nonmembers, "auxiliary": auxiliary}
        if plan:
            typer.echo(plan_audit(setting, **parts, seeds=seeds, workers=workers, engine=engine))
            return
        results = run_audit(
            setting, **parts, seeds=seeds, out=out, workers=workers, engine=engine, quiet=quiet
        )
    if not quiet:
        tell_decision(results, setting.audit.limits)
    typer.echo(results.folder)
    refuse_contradictions(results)


@app.command()
def init(
    file: Annotated[Path, typer.Argument(help="The file to write.")] = Path("glasshouse.toml"),
) -> None:
    """Write a commented configuration to start from.

    Example:

        glasshouse init my.toml && glasshouse audit my.toml
    """
    from glasshouse.auditing.template import template
    from glasshouse.store import write_text

    if file.exists():
        raise BadInput(f"{file} exists; choose another name, or delete it first")
    write_text(file, template())
    typer.echo(f"wrote {file}; run `glasshouse audit {file}`")


@app.command()
def study(
    name: Annotated[str, typer.Argument(help="Which study: `glasshouse list studies`.")],
    scale: Annotated[
        str, typer.Option(help="smoke (a minute), laptop (an honest small version) or paper (all of it).")
    ] = "smoke",
    cells: Annotated[str, typer.Option(help="Only the cells that match this pattern.")] = "*",
    seeds: Annotated[
        int | None, typer.Option(min=1, help="How many seeds; the scale's own number by default.")
    ] = None,
    attack: Annotated[
        str | None, typer.Option(help="One more attack where it fits: my_lab:MyAttack, or a name.")
    ] = None,
    listed: Annotated[
        bool, typer.Option("--list", help="Only list the cells, printed numbers and known seconds.")
    ] = False,
    out: Out = None,
    seed: Seed = None,
    workers: Workers = None,
    engine: EngineOption = "processes",
    quiet: Quiet = False,
) -> None:
    """Reproduce a paper's tables, cell by cell, beside its printed numbers.

    Finished cells are kept: a stopped run continues, and more cells or seeds are added to what is there.

    Examples:

        glasshouse study clients

        glasshouse study clients --scale laptop --seeds 3 --cells 'clients-1*'

        glasshouse study mia-bad --scale laptop --list

        glasshouse study mia-bad --attack my_lab:MyAttack
    """
    from glasshouse.studies import STUDIES

    STUDIES.check(name)
    if listed:
        from glasshouse.studies.overview import overview

        for line in overview(
            name, scale=scale, cells=cells, seeds=seeds, seed=seed or 0, attack=attack, out=out
        ):
            typer.echo(line)
        return
    with resumable():
        from glasshouse.api import study as run_study

        results = run_study(
            name,
            scale=scale,
            cells=cells,
            seeds=seeds,
            seed=seed or 0,
            attack=attack,
            out=out,
            workers=workers,
            engine=engine,
            quiet=quiet,
        )
    typer.echo(results.folder)


app.command()(gate)
app.command()(vet)
app.command()(inspect)
app.command()(search_policy)


@app.command("list")
def list_names(
    kind: Annotated[str | None, typer.Argument(help="What to list; left out, what can be listed.")] = None,
) -> None:
    """List what can be named in a configuration or on the command line.

    Examples:

        glasshouse list

        glasshouse list attacks
    """
    from glasshouse.listing import kinds, listing

    for line in listing(kind) if kind else kinds():
        typer.echo(line)


@app.command()
def data(name: Annotated[str, typer.Argument(help="A named set: `glasshouse list data`.")]) -> None:
    """Fetch a named data set and check it.

    The files go to the folder that GLASSHOUSE_DATA names, or to the user's cache folder.

    Example:

        glasshouse data fashion-mnist
    """
    from glasshouse.data.sources import fetch

    typer.echo(fetch(name))


@app.command()
def report(
    folders: Annotated[list[Path], typer.Argument(help="Folders of finished runs.")],
    out: Annotated[Path, typer.Option(help="The page that compares several runs.")] = Path("comparison.html"),
) -> None:
    """Write the page of a run anew, or compare several runs: in what they differ, and what that changes.

    Every further run is compared with the first. Those that differ by their seeds alone are pooled.

    Examples:

        glasshouse report runs/audit-digits-1

        glasshouse report runs/a runs/b --out both.html
    """
    from glasshouse.report import compare_runs, write_comparison, write_report

    if len(folders) == 1:
        typer.echo(write_report(folders[0]))
        return
    compared = compare_runs(folders)
    page = write_comparison(compared, out)
    typer.echo(compared)
    typer.echo(page)


def _crash(error: Exception) -> str:
    """A line about what should not have happened."""
    if os.environ.get("GLASSHOUSE_TRACEBACK"):
        traceback.print_exception(error)
    return (
        f"glasshouse: unexpected {named(error)}; this is a fault of Glasshouse, please report it with what "
        "GLASSHOUSE_TRACEBACK=1 shows"
    )


def main() -> None:
    """Run a command; what the user got wrong is one line and exit code 2, what is our fault one and 3."""
    warnings.formatwarning = one_line_warning
    try:
        app()
    except Exception as error:
        known = fault_of(error) if disk_failed(error) else error
        if isinstance(known, BadInput):
            typer.echo(f"glasshouse: {one_line(str(known), LONGEST_LINE)}", err=True)
            sys.exit(2)
        typer.echo(_crash(error), err=True)
        sys.exit(3)


if __name__ == "__main__":
    main()
