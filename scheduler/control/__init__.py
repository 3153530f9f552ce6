"""The control API: HTTP with JSON over the daemon's Unix socket."""
