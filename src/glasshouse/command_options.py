"""Options that several commands take, and how a command ends that somebody stops."""

import signal
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated, Any

import typer

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
