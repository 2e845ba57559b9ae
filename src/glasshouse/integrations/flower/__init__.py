"""Glasshouse in a Flower app."""
