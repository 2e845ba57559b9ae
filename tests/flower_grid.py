"""A grid of Flower in this process, whose wire is Flower's own serialisation, for the tests of mods and strategies."""

from copy import deepcopy

from flwr.app import ArrayRecord, Context, Error, Message, RecordDict
from flwr.serverapp import Grid
from flwr.supercore.task_identity import TaskIdentity

for name in ("_task_id", "_run_id", "_node_id"):
    setattr(TaskIdentity, name, 1)

FIRST = 2**63 + 11  # Flower's numbers of nodes have 64 bits


class InProcess(Grid):
    """Client apps at nodes from `FIRST` on, with a partition each; `lost(node, message)` says what is lost."""

    run = None

    def __init__(self, apps, lost=lambda place, message: False):
        self.apps, self.lost = list(apps), lost
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
        self.seen = []  # what reaches the server

    def get_node_ids(self):
        return [FIRST + place for place in range(len(self.apps))]

    def send_and_receive(self, messages, *, timeout=None):
        replies = []
        for message in list(messages):
            place = message.metadata.dst_node_id - FIRST
            if self.lost(place, message):
                continue
            received = deepcopy(message)
            try:
                reply = self.apps[place](received, self.contexts[place])
            except Exception as error:
                reply = Message(Error(2, repr(error)), reply_to=received)
            replies.append(deepcopy(reply))
        self.seen += replies
        return replies

    def set_run(self, run):
        raise NotImplementedError

    create_message = get_nodes = push_messages = pull_messages = set_run


def arrays_of(model):
    return ArrayRecord(model.state_dict())
