"""Legate, Caccia, Belilovsky: Re-Weighted Softmax Cross-Entropy to Control Forgetting in Federated Learning.

https://arxiv.org/abs/2304.05260; the tables and figures are those of the first author's thesis of that name.
"""
