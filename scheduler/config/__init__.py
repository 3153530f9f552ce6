"""The configuration edge: the daemon's own file, job files, and what a reload changes."""
