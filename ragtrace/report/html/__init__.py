"""The report as one HTML page: rows (``data``), their order (``arranged``), plots, and templates."""
