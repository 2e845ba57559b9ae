"""What a worker does about the process that started it; light to import, as it comes first in a worker."""

import os
import threading
import time
import warnings
from collections.abc import Callable

POLL = 0.5
"""Seconds between two looks at the parent."""


def begin(parent: int, form_of_warnings: Callable[..., str]) -> None:
    """Begin as a worker of `parent`: warn as it does, and end with it."""
    warnings.formatwarning = form_of_warnings
    end_with(parent)


def end_with(parent: int) -> None:
    """From now on this process ends soon after `parent` did, however that came about."""
    threading.Thread(target=_watch, args=(parent,), daemon=True).start()


def _watch(parent: int) -> None:
    while os.getppid() == parent:
        time.sleep(POLL)
    os._exit(1)
