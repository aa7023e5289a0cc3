"""Invalid use of every kind: one line that names culprit and remedy, exit status 2, no files written."""
