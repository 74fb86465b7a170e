"""The reference loop: every rule a simulation can have, written to be read. Start with `loop`."""
