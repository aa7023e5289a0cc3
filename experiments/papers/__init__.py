"""Tables and figures of four papers as data, in a package per paper, and their printed numbers."""
