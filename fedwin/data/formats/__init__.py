"""File formats of the original data sets, and reading them."""
