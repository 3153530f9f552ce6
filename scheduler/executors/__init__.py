"""Executors: commands, shell lines and Python handlers as attempts; their output; ending what is left."""
