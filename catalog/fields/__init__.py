"""The fields of the management interface: how they are spelt, what each accepts, how it is kept."""
