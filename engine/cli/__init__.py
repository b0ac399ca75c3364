"""The command `proximity`: a module or a package for each command.

`register` adds a command to the application. Heavy imports wait until the command is called.
"""
