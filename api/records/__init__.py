"""Records in the interface's form, read column by column, with a fixed number of queries a page."""
