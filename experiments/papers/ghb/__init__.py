"""Zaccone et al.: Communication-Efficient Heterogeneous Federated Learning with Generalized Heavy-Ball Momentum.

https://arxiv.org/abs/2311.18578
"""
