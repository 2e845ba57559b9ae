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


class _Terminated(KeyboardInterrupt):
    """Somebody asked the process to end: `kill PID`."""


def _terminate(*_: Any) -> None:
    raise _Terminated


@contextmanager
def resumable() -> Iterator[None]:
    """Turn Ctrl-C and `kill PID` into a line that says what to do, and exit code 130 or 143."""
    before = signal.signal(signal.SIGTERM, _terminate)
    try:
        yield
    except KeyboardInterrupt as stop:
        typer.echo("glasshouse: interrupted; the same command continues where it stopped", err=True)
        raise typer.Exit(143 if isinstance(stop, _Terminated) else 130) from None
    finally:
        signal.signal(signal.SIGTERM, before)
