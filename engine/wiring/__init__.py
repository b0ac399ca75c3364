"""The composition root: the only place that builds concrete objects and connects them.

There is one module for each role; `parts` has what roles share, and `run` puts the roles of a process
together.
"""
