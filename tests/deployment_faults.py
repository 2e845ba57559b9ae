"""A client mod that does what its SuperNode's settings say goes wrong."""

FAULTS = """
import time
from pathlib import Path

import numpy as np
from flwr.app import Array, ConfigRecord


def faulty(message, context, call_next):
    fault, number = context.node_config["fault"], message.content["config"]["server-round"]
    if fault == "silence" and number == 2:
        (Path(context.node_config["folder"]) / "training").touch()
        time.sleep(600)
    reply = call_next(message, context)
    arrays = reply.content["arrays"]
    if fault == "NaN":
        arrays["fc2.bias"] = Array(np.full(10, np.nan, np.float32))
    if fault == "shape":
        arrays["fc2.bias"] = Array(np.zeros(9, np.float32))
    reply.content["client"] = ConfigRecord({"name": context.node_config["name"]})
    return reply
"""
