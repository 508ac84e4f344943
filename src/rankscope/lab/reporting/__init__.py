"""Showing verdicts: terminal, HTML page, Markdown tables."""
