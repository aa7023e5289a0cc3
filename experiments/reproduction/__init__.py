"""Running tables and figures of papers: plan, work, read off, write, keep."""
