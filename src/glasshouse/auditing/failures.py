"""What becomes of an attack that fails: a user's own leaves a reason, the machine a fault, ours a bug."""

import inspect
import traceback
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from glasshouse.attacks.attack import Attack
from glasshouse.errors import BadInput, CannotRun, Fault, disk_failed, named, quoted


@contextmanager
def answering_for(attack: Attack, spec: str) -> Iterator[None]:
    """Turn what a user's own attack raises into the reason why it could not run.

    Where memory or the disk fails, whoever wrote the attack, that is a fault, and so is any file that fails
    an attack of Glasshouse. All else that such an attack raises is a bug, and stays what it is.
    """
    try:
        yield
    except (CannotRun, Fault):
        raise
    except (Exception, SystemExit) as error:
        ours = type(attack).__module__.startswith("glasshouse.")
        no_memory = isinstance(error, MemoryError) or "can't allocate memory" in named(error)
        if no_memory or disk_failed(error) or (ours and isinstance(error, OSError)):
            raise Fault(
                f"attack {quoted(spec)} failed with {named(error)}; mend that, or leave the attack out, and "
                "run again: what is done is kept"
            ) from error
        if ours:
            raise
        if isinstance(error, BadInput):
            raise CannotRun(str(error)) from error
        raise CannotRun(f"the attack raised {named(error)}{_place(attack, error)}") from error


def _place(attack: Attack, error: BaseException) -> str:
    """Where in the attack's own file the error came from, in words; nothing where it came from no file."""
    try:
        file = inspect.getfile(type(attack))
    except (OSError, TypeError):
        return ""
    lines = [frame.lineno for frame in traceback.extract_tb(error.__traceback__) if frame.filename == file]
    return f" ({Path(file).name}, line {lines[-1]})" if lines else ""
