"""Flower apps in this process: a grid that hands messages to clients, in the order of their numbers."""

from contextlib import contextmanager
from copy import deepcopy

import torch
from conftest import make_model
from flwr.app import ArrayRecord, ConfigRecord, Context, Message, MetricRecord, RecordDict
from flwr.clientapp import ClientApp
from flwr.supercore.task_identity import TaskIdentity

from glasshouse.learning.cpu import laid_out
from glasshouse.learning.fit import fit
from glasshouse.learning.layout import read_vector
from glasshouse.learning.seeds import derive


class LocalGrid:
    """What a strategy asks to send its messages; `spoil` may change what a node replies, or return null."""

    def __init__(self, app, nodes, spoil=lambda node, number, reply: reply, run_config=None):
        self._app, self._spoil = app, spoil
        self.nodes = {
            node: context(node, place, len(nodes), run_config or {}) for place, node in enumerate(nodes)
        }
        self._number = 0

    @property
    def run(self):
        return type("Run", (), {"run_id": 1})

    def get_node_ids(self):
        return list(self.nodes)

    def send_and_receive(self, messages, *, timeout=None):
        messages = sorted(messages, key=lambda message: message.metadata.dst_node_id)
        self._number += bool(messages)
        replies = []
        for message in messages:
            node = message.metadata.dst_node_id
            reply = deepcopy(self._app(deepcopy(message), self.nodes[node]))
            replies.append(self._spoil(node, self._number, reply))
        return [reply for reply in replies if reply is not None]


def context(node, place, count, run_config):
    config = {"partition-id": place, "num-partitions": count}
    return Context(run_id=1, node_id=node, node_config=config, state=RecordDict(), run_config=run_config)


@contextmanager
def identity():
    """Messages are made by a task of a run, which nobody started here."""
    names = ("_task_id", "_run_id", "_node_id")
    before = {name: getattr(TaskIdentity, name) for name in names}
    TaskIdentity.task_id = TaskIdentity.run_id = TaskIdentity.node_id = 1
    try:
        yield
    finally:
        for name, value in before.items():
            setattr(TaskIdentity, name, value)


def trained(sent, images, recipe, seed, client, number):
    """The state dict of a client that trains as one of Glasshouse's federation with this `seed` does."""
    torch.set_num_threads(1)  # as in Glasshouse's workers
    network = laid_out(make_model())
    network.load_state_dict(sent)
    drawn = derive(derive(seed, "round", number), "client", client)
    fit(network, read_vector(network), images, recipe, drawn)
    return {name: tensor.clone() for name, tensor in network.state_dict().items()}


def client_app(split, recipe, seed=0, mods=()):
    """A client for each part of `split`, which calls itself by its number."""
    app = ClientApp(mods=list(mods))

    @app.train()
    def train(message, context):
        client = context.node_config["partition-id"]
        images = split.pool[split.clients[client]]
        received = message.content["arrays"].to_torch_state_dict().values()
        sent = dict(zip(make_model().state_dict(), received))  # Flower numbers what came without names
        number = message.content["config"]["server-round"] - 1
        after = trained(sent, images, recipe, seed, client, number)
        reply = {
            "arrays": ArrayRecord(after),
            "metrics": MetricRecord({"num-examples": len(images)}),
            "client": ConfigRecord({"name": f"ward {client}"}),
        }
        return Message(content=RecordDict(reply), reply_to=message)

    return app


def first_arrays():
    return ArrayRecord(make_model().state_dict())


def as_vector(arrays):
    """All floating entries of a record in one vector."""
    tensors = arrays.to_torch_state_dict().values()
    return torch.cat([tensor.reshape(-1).double() for tensor in tensors])
