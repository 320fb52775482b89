"""A comparison as a table, as JSON and as a page."""
