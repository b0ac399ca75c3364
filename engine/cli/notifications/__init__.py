"""The topic of notifications as a person reads it; nothing of the data path imports this."""
