"""What a client notices about a received model."""

from dataclasses import dataclass


@dataclass(frozen=True)
class Sign:
    """Something odd about one layer (or the whole model: `layer` is empty), in plain words.

    An alarming sign is enough to call the model crafted; the others are worth knowing beside it.
    """

    name: str
    layer: str
    why: str
    alarming: bool

    def __str__(self) -> str:
        """One line: name, layer and reason."""
        place = f" in {self.layer}" if self.layer else ""
        return f"{self.name}{place}: {self.why}"
