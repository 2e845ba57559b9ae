"""The command `glasshouse gate`."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from glasshouse.command_options import tell_verdict
from glasshouse.errors import BadInput

if TYPE_CHECKING:
    from glasshouse.verdicts.limits import Limits
    from glasshouse.verdicts.measure import Measure
    from glasshouse.verdicts.weighing import Option

LONGEST = 1_000_000
"""Bytes of a file of limits."""


def gate(
    run: Annotated[Path, typer.Argument(help="Folder of a finished audit.")],
    limits: Annotated[
        Path | None, typer.Option(help="TOML file of limits; by default those that the run was given.")
    ] = None,
    end: Annotated[
        str | None,
        typer.Option(help="Which end of an interval must keep a limit: possible, point or shown."),
    ] = None,
    defence: Annotated[str, typer.Option(help="What is to be released: one of the run's defences.")] = "none",
    accept_untried: Annotated[
        bool, typer.Option("--accept-untried", help="What could not be tried breaks no limit.")
    ] = False,
) -> None:
    """May this be released? Exit code 0: every limit is kept; 1: one is not, and by which finding.

    Other exit codes are no verdict. 2: something given cannot be used; 3: a fault of Glasshouse.

    Examples:

        glasshouse gate runs/audit-digits-1 --limits limits.toml

        glasshouse gate runs/a --limits limits.toml --defence "pruning(fraction=0.95)" --end shown
    """
    accepted = _limits(run, limits, end, accept_untried)
    measures = _measures(run)
    option = _option(measures, accepted, defence)
    faults = _faults(option, accepted, measures)
    for one in option.checks:
        if one not in option.open:
            tell_verdict(f"ok: {one}")
    for fault in faults:
        tell_verdict(f"not kept: {fault}")
    what = "the undefended model" if defence == "none" else defence
    broken = "1 limit is not kept" if len(faults) == 1 else f"{len(faults)} limits are not kept"
    tell_verdict(f"{what}: {broken if faults else 'every limit is kept'}")
    raise typer.Exit(1 if faults else 0)


def _limits(run: Path, file: Path | None, end: str | None, untried: bool) -> "Limits":
    """The limits of a file, or those of the run, with what the command line says of them."""
    from dataclasses import replace

    from glasshouse.reading import read_file
    from glasshouse.registry import unknown
    from glasshouse.verdicts.limits import limits_in
    from glasshouse.verdicts.outcome import ENDS

    path = file or run / "config.toml"
    try:
        found = limits_in(read_file(path, LONGEST).decode())
    except OSError as error:
        raise BadInput(f"{path} cannot be read ({error.strerror}); give limits with --limits") from error
    except UnicodeDecodeError as error:
        raise BadInput(f"{path} is no text in UTF-8 ({error.reason}); give limits as TOML") from error
    except BadInput as error:
        raise BadInput(f"{path}: {error}") from error
    if not found.given:
        raise BadInput(f'{path} holds no limits; write, for example, everyone = "slight", see the docs')
    if end is not None:
        chosen = next((known for known in ENDS if known == end), None)
        if chosen is None:
            raise BadInput(unknown("end of the interval", end, ENDS))
        found = replace(found, end=chosen)
    return replace(found, untried=found.untried or untried)


def _measures(run: Path) -> "list[Measure]":
    """What the audit in the folder measured, over its seeds."""
    from glasshouse.report.run import read_run
    from glasshouse.verdicts.pooling import pooled

    read = read_run(run)
    rows = [row for row in read.rows if row.source == "audit"]
    if not rows:
        raise BadInput(f"{run} holds no findings of an audit; give a folder written by glasshouse audit")
    return pooled(rows, same_records=read.same_records)


def _option(measures: "list[Measure]", limits: "Limits", defence: str) -> "Option":
    """What is to be released, beside the limits."""
    from glasshouse.registry import unknown
    from glasshouse.verdicts.frontier import frontier
    from glasshouse.verdicts.weighing import weigh

    options = weigh(frontier(measures), limits)
    known = {option.choice.defence: option for option in options}
    if defence not in known:
        raise BadInput(unknown("defence in this run", defence, known))
    return known[defence]


def _faults(option: "Option", limits: "Limits", measures: "list[Measure]") -> list[str]:
    """Why it may not be released, a line each."""
    from glasshouse.verdicts.contradictions import contradictions

    faults = [str(one) for one in option.open]
    faults += [one.words for one in contradictions(measures) if one.defence == option.choice.defence]
    if not option.affordable:
        faults.append(f"accuracy: the defence costs more than {limits.accuracy:g}, or that is not known")
    if option.choice.partial:
        faults.append("attacks: some that met the undefended model were not run; audit this defence by name")
    return faults
