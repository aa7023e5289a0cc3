"""Reproduction of the papers' tables and figures: plan, training, result store, numbers, tables, pictures."""
