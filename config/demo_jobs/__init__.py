"""Handlers of the demo jobs: what the Python side of a job looks like."""
