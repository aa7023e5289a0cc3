"""Zhou et al.: Understanding and Improving Model Averaging in Federated Learning on Heterogeneous Data.

https://arxiv.org/abs/2305.07845
"""
