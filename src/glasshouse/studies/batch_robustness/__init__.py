"""Robustness and curvature against batch size (Kamath et al. 2019), and the same questions for FedAvg."""
