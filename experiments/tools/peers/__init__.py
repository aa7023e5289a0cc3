"""The benchmark's contestants: scripts that train a case and print the seconds of each turn as a JSON line."""
