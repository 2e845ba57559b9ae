"""A Flower app: clients learn to read digits."""
