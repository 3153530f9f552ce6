"""schedctl: the command line client. It speaks the control API and nothing else."""
