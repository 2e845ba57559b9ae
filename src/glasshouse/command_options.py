"""Options that several commands take, and how a command ends that somebody stops."""

import signal
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from glasshouse.errors import Fault

if TYPE_CHECKING:
    from glasshouse.auditing.setting import Setting
    from glasshouse.results import Results

Out = Annotated[Path | None, typer.Option(help="Folder for the results; a new one under runs/ by default.")]
Seed = Annotated[int | None, typer.Option(min=0, help="Seed of every random choice.")]
Workers = Annotated[int | None, typer.Option(min=1, help="Processes at once; all cores by default.")]
EngineOption = Annotated[str, typer.Option(help="Where jobs run: processes, ray or dask.")]
Quiet = Annotated[bool, typer.Option("--quiet", "-q", help="No progress, only the path of the results.")]


@contextmanager
def resumable() -> Iterator[None]:
    """Turn Ctrl-C and `kill PID` into a line that says what to do, and exit code 130 or 143.

    Whatever ends the command after such a signal is its consequence: packages that are just being imported
    make an ImportError of the interruption.
    """
    signals: list[int] = []

    def stop(number: int, _: Any) -> None:
        signals.append(number)
        raise KeyboardInterrupt

    listened = [signal.SIGTERM]
    if signal.getsignal(signal.SIGINT) is signal.default_int_handler:  # else somebody wants it ignored
        listened.append(signal.SIGINT)
    before = {number: signal.signal(number, stop) for number in listened}
    try:
        yield
    except BaseException as error:
        if not signals and not isinstance(error, KeyboardInterrupt):
            raise
        typer.echo("glasshouse: interrupted; the same command continues where it stopped", err=True)
        raise typer.Exit(128 + (signals or [signal.SIGINT])[0]) from None
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def tell_verdict(verdict: str) -> None:
    """Print a verdict; one that nobody could read is a fault, for which typer itself would leave with 1."""
    try:
        typer.echo(verdict)
    except OSError as error:
        raise Fault(f"the verdict cannot be written ({error.strerror}); check where it goes") from error


def tell_decision(results: "Results", limits: dict[str, Any]) -> None:
    """Print to standard error what the page opens with, and which of the user's own attacks failed."""
    from glasshouse.models.loading import users_own
    from glasshouse.verdicts.decision import decide, lines
    from glasshouse.verdicts.limits import read_limits
    from glasshouse.verdicts.metrics import NOT_RUN
    from glasshouse.verdicts.pooling import pooled

    measures = pooled(results.findings, same_records=results.same_records)
    for line in lines(decide(measures, read_limits(limits))):
        typer.echo(line, err=True)
    unheard = {(one.attack, one.reason) for one in results.findings if one.metric == NOT_RUN and one.reason}
    for attack, reason in sorted(unheard):
        if attack and users_own(attack):
            typer.echo(f"{attack} could not run: {reason}", err=True)


def refuse_contradictions(results: "Results") -> None:
    """End with exit code 1 where a bound from below exceeds what the accountant says, one line for each."""
    from glasshouse.verdicts.contradictions import contradictions
    from glasshouse.verdicts.pooling import pooled

    found = contradictions(pooled(results.findings, same_records=results.same_records))
    for contradiction in found:
        typer.echo(f"glasshouse: CONTRADICTION: {contradiction.words}", err=True)
    if found:
        raise typer.Exit(1)


def overridden(
    setting: "Setting",
    data: str | None,
    model: str | None,
    weights: str | None,
    seed: int | None,
    defences: list[str] | None,
) -> "Setting":
    """The setting with what was given on the command line."""
    changes: dict[str, Any] = {}
    if data is not None:
        changes["data"] = setting.data.model_copy(update={"name": data})
    network = {"name": model, "weights": weights}
    network = {key: value for key, value in network.items() if value is not None}
    if network:
        changes["model"] = setting.model.model_copy(update=network)
    if seed is not None:
        changes["seed"] = seed
    if defences is not None:
        tried = tuple(defence for defence in defences if defence != "none")
        changes["audit"] = setting.audit.model_copy(update={"defences": tried})
    return setting.model_copy(update=changes)
