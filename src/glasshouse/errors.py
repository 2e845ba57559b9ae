"""The errors that end a command with one line, and the one by which an attack says that it does not apply."""


class BadInput(ValueError):
    """Something the user gave cannot be used; the message names the value, the rule and the remedy."""


class Fault(BadInput):
    """The machine failed, and not what the user gave: a full disk, a damaged file, a worker that was killed.

    A fault passes: it is never a finding, and what it stopped is done when the command is run again.
    """


def fault_of(error: BaseException) -> Fault | None:
    """`error` as a fault of the machine, if it is one: of the disk, or of the memory."""
    if isinstance(error, Fault):
        return error
    if isinstance(error, MemoryError) or "can't allocate memory" in str(error):
        return Fault("memory ran out; lower --workers, and the same command goes on where it stopped")
    if isinstance(error, OSError):
        return Fault(f"{error}; see to it, and the same command goes on where it stopped")
    return None


class CannotRun(Exception):
    """The attack does not apply here; the message says why, and becomes the reason of a null finding."""
