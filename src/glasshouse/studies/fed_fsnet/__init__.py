"""Strategies against non-IID data (Guo et al. 2022, Fed-FSNet): what each is worth, costs and gives away."""
