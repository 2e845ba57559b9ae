"""A client: it trains the model that it receives on its own digits."""

import torch
from flwr.app import ArrayRecord, Context, Message, MetricRecord, RecordDict
from flwr.clientapp import ClientApp

from digits_app.task import Net, load_data, train

app = ClientApp()


@app.train()
def train_here(message: Message, context: Context) -> Message:
    torch.set_num_threads(1)
    config = context.run_config
    x, y = load_data(context.node_config["partition-id"], context.node_config["num-partitions"])
    net = Net()
    net.load_state_dict(message.content["arrays"].to_torch_state_dict())
    loss = train(net, x, y, config["local-epochs"], config["batch-size"], config["learning-rate"])
    reply = RecordDict(
        {
            "arrays": ArrayRecord(net.state_dict()),
            "metrics": MetricRecord({"train-loss": loss, "num-examples": len(y)}),
        }
    )
    return Message(content=reply, reply_to=message)
