"""The sections of a profile, one module each."""
