"""The pages: one module per area, with its routes in PAGES."""
