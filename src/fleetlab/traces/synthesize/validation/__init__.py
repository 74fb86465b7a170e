"""Compare a synthetic trace with the published numbers it was made from."""
