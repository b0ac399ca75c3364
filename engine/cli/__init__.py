"""The command `proximity`: a module or a package for each command.

command.py lists them all; application.py imports a module when its command is called.
"""
