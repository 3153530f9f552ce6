"""The one truth: rows, behind one protocol of verbs."""
