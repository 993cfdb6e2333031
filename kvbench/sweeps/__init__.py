"""Sweeps: many independent replays of one trace, run somewhere and gathered in one table."""
