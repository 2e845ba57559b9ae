"""Where federations run: Flower, NVIDIA FLARE."""
