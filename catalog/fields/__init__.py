"""The fields of the management interface: their names, what each accepts, how it is stored."""
