"""The composition root: the only place where concrete things are built and connected.

A module a role, one for what they share, and `run` that puts the roles of a process together.
"""
