"""Survey: every method at three heterogeneities and two participations, on the same seeds."""
