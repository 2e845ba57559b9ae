"""The same client behind Flower's secure aggregation, which is written for its legacy interface."""

import numpy as np
import torch
from flwr.app import Context
from flwr.client import Client, NumPyClient
from flwr.client.mod import secaggplus_mod
from flwr.clientapp import ClientApp

from digits_app.task import Net, load_data, train


class Trains(NumPyClient):
    """Trains the model that it receives on its own digits."""

    def __init__(self, context: Context) -> None:
        self.config, self.partition = context.run_config, context.node_config["partition-id"]
        self.x, self.y = load_data(self.partition, context.node_config["num-partitions"])

    def fit(self, parameters: list[np.ndarray], config: dict) -> tuple[list[np.ndarray], int, dict]:
        torch.set_num_threads(1)
        net = Net()
        names = net.state_dict().keys()
        received = (torch.from_numpy(np.array(array)) for array in parameters)
        net.load_state_dict(dict(zip(names, received, strict=True)))
        numbers = (self.config[key] for key in ("local-epochs", "batch-size", "learning-rate"))
        loss = train(net, self.x, self.y, *numbers)
        told = {"train-loss": loss, "partition-id": self.partition}
        return [tensor.numpy() for tensor in net.state_dict().values()], len(self.y), told


def client_for(context: Context) -> Client:
    return Trains(context).to_client()


app = ClientApp(client_fn=client_for, mods=[secaggplus_mod])
