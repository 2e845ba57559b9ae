"""Flower federations."""
