"""A grid of Flower in this process, whose wire and storage are Flower's own serialisation."""

import numpy as np
from flwr.app import Array, ArrayRecord, Context, Error, Message, MetricRecord, RecordDict
from flwr.clientapp import ClientApp
from flwr.common.serde import context_from_proto, context_to_proto, message_from_proto, message_to_proto
from flwr.serverapp import Grid
from flwr.supercore.task_identity import TaskIdentity

for name in ("_task_id", "_run_id", "_node_id"):
    setattr(TaskIdentity, name, 1)

FIRST = 2**63 + 11  # Flower's numbers of nodes have 64 bits


class InProcess(Grid):
    """Client apps at nodes from `FIRST` on, with a partition each.

    `lost(place, message)` says whether a message does not reach the app at a place, `changed(place, reply)`
    what becomes of a reply. All replies are kept in `seen`.
    """

    run = None

    def __init__(self, apps, lost=lambda place, message: False, changed=lambda place, reply: reply):
        self.apps, self.lost, self.changed = list(apps), lost, changed
        self.seen = []
        self.contexts = [
            Context(
                run_id=1,
                node_id=FIRST + place,
                node_config={"partition-id": place, "num-partitions": len(self.apps)},
                state=RecordDict(),
                run_config={},
            )
            for place in range(len(self.apps))
        ]

    def get_node_ids(self):
        return [FIRST + place for place in range(len(self.apps))]

    def send_and_receive(self, messages, *, timeout=None):
        arrived = []
        for message in list(messages):
            place = message.metadata.dst_node_id - FIRST
            if self.lost(place, message):
                continue
            received = message_from_proto(message_to_proto(message))
            context = context_from_proto(context_to_proto(self.contexts[place]))
            try:
                reply = self.apps[place](received, context)
                self.contexts[place] = context
            except Exception as error:
                reply = Message(Error(2, repr(error)), reply_to=received)
            arrived.append(self.changed(place, message_from_proto(message_to_proto(reply))))
        self.seen += arrived
        return arrived

    def set_run(self, run):
        raise NotImplementedError

    create_message = get_nodes = push_messages = pull_messages = set_run


def adding(change, samples=10, mods=(), metrics=None):
    """A client app whose training adds `change`, by name, to the arrays that it receives."""
    app = ClientApp(mods=list(mods))

    @app.train()
    def train(message, context):
        received = {name: array.numpy() for name, array in message.content["arrays"].items()}
        trained = {name: array + change.get(name, 0) for name, array in received.items()}
        arrays = ArrayRecord({k: Array(np.asarray(v, received[k].dtype)) for k, v in trained.items()})
        said = MetricRecord({"num-examples": samples, **(metrics or {})})
        return Message(RecordDict({"arrays": arrays, "metrics": said}), reply_to=message)

    return app


def stage_of(message):
    """The stage of secure aggregation that a message belongs to."""
    record = message.content.config_records.get("glasshouse.secagg") if message.has_content() else None
    return None if record is None else record["stage"]
