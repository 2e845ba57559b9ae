"""The networks that `glasshouse list models` shows."""

from glasshouse.registry import Registry

MODELS = Registry(
    "model",
    {
        "mlp": "glasshouse.models.dense:mlp",
        "lenet": "glasshouse.models.convolutional:lenet",
        "lenet-sigmoid": "glasshouse.models.convolutional:lenet_sigmoid",
        "m1": "glasshouse.models.convolutional:m1",
        "stdcnn": "glasshouse.models.convolutional:stdcnn",
        "c1": "glasshouse.models.convolutional:c1",
        "convnet": "glasshouse.models.convolutional:convnet",
        "convnet-16": "glasshouse.models.convolutional:convnet_16",
        "cnn6": "glasshouse.models.leaky:cnn6",
        "resnet18": "glasshouse.models.residual:resnet18",
        "resnet20": "glasshouse.models.residual:resnet20",
        "resnet20-4": "glasshouse.models.residual:resnet20_4",
        "efficientnet-b0": "glasshouse.models.efficientnet:efficientnet_b0",
        "cnn": "glasshouse.models.split:cnn",
        "alexnet": "glasshouse.models.split:alexnet",
        "vgg": "glasshouse.models.split:vgg",
        "resnet": "glasshouse.models.split:resnet",
        "vit": "glasshouse.models.vit:vit",
        "april-vit": "glasshouse.models.april:april_vit",
    },
)
