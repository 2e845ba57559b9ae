"""The names of the data sets and partitions that come with Glasshouse."""

from glasshouse.registry import Registry

DATA = Registry(
    "data set",
    {
        "digits": "glasshouse.data.named:digits",
        "mnist": "glasshouse.data.named:mnist",
        "fashion-mnist": "glasshouse.data.named:fashion_mnist",
        "cifar10": "glasshouse.data.named:cifar10",
        "cifar100": "glasshouse.data.named:cifar100",
        "hmnist": "glasshouse.data.named:hmnist",
        "tiny-imagenet-20": "glasshouse.data.named:tiny_imagenet_20",
    },
)

PARTITIONS = Registry(
    "partition",
    {
        "iid": "glasshouse.data.partitions:iid",
        "shards": "glasshouse.data.partitions:shards",
        "dirichlet": "glasshouse.data.partitions:dirichlet",
        "by-user": "glasshouse.data.partitions:by_user",
        "by-client": "glasshouse.data.partitions:by_client",
    },
)
