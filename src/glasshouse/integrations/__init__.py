"""Federations that run in other frameworks."""
