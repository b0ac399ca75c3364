"""`proximity explain`: explains why a detection fires a campaign or does not."""
