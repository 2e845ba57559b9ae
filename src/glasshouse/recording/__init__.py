"""Recorded rounds: a folder in which any framework leaves what the server of a federation saw.

Nothing in such a folder is code, and nothing in it is run. Writing it takes numpy and safetensors, not torch.
"""

from glasshouse.recording.seen import Seen
from glasshouse.recording.writer import Recorder

__all__ = ["Recorder", "Seen"]
