"""`proximity explain`: why a detection fires a campaign, or why not."""
