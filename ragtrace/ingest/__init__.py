"""Spans from elsewhere."""
