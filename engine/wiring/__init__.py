"""The composition root: the only place that builds concrete objects and connects them.

There is one module for each role, one for the parts that roles share, and `run`, which puts the
roles of a process together.
"""
