"""Ways for the clients' updates to reach the server, by the names users type."""

from glasshouse.registry import Registry

CHANNELS = Registry(
    "channel",
    {
        "plain": "glasshouse.federation.channels.channel:Plain",
        "ideal": "glasshouse.federation.channels.channel:Ideal",
        "secure": "glasshouse.federation.channels.secure:Secure",
        "flower": "glasshouse.federation.channels.flower:FlowerSecAgg",
    },
    base="glasshouse.federation.channels.channel:Channel",
)
