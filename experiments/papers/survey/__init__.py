"""A table that no paper has: every method at three heterogeneities and two participations, on the same seeds."""
