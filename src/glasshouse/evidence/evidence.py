"""What an attack returns."""

from abc import ABC


class Evidence(ABC):  # noqa: B024
    """One answer of an attack; a kind of it is one file of this folder."""
