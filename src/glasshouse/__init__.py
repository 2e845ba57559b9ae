"""Glasshouse measures what a federated model gives away."""
