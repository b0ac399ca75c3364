"""The command `proximity`: a module or a package for each command.

`app` of each has its commands; application.py imports a module when its command is called.
"""
