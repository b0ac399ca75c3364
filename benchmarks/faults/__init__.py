"""Faults under load, one after the other on one installation: `make faults`."""
