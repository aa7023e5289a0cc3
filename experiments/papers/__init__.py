"""The tables and figures of four papers as data: one small file for each, in a folder per paper."""
