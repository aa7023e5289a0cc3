"""Tables of finished runs, on the terminal and as CSV, Markdown and PNG files."""
