"""NVIDIA FLARE federations."""
