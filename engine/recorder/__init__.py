"""The role `recorder`: counts batches of records, and writes the counts and traces to SQL."""
