"""Caldarola, Caputo, Ciccone: Window-based Model Averaging Improves Generalization in Heterogeneous Federated Learning.

https://arxiv.org/abs/2310.01366
"""
