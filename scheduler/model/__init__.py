"""The words of the domain: frozen values, closed lists, the transition table; no I/O."""
