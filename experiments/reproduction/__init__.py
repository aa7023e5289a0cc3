"""Reproduction of the papers' tables and figures: runs, work, stored results, numbers, tables, pictures, pages.

Arguments that recur: `item` is a table or figure, `cell` one of its numbers, `scale` smoke, trend or paper, `run` a
trajectory, `results` the store in which records are found, `numbers` those of an item's cells, `data_dir` the folder of
the data sets' files, `request` the options of a command.
"""
