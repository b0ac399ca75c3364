"""The pages, a module an area; each names its addresses in PAGES."""
