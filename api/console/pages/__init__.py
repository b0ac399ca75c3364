"""The pages: one module per area, with its router."""
