"""Records as the interface shows them, read column by column, a fixed number of queries a page."""
