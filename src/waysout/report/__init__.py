"""A result as a person reads it: text for a terminal, a frame, a spreadsheet, a page."""
