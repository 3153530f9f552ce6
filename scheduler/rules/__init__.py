"""Decisions as pure functions of rows and time."""
