"""The composition root: the only place that builds concrete objects and connects them.

One module for each role; `parts` has what roles share, `run` puts the roles of a process together.
"""
