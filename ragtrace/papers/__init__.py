"""The two papers' reproductions, with the papers' own defenses as they describe them, stubs included."""
