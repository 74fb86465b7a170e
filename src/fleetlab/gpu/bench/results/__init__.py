"""The results of a suite: its cells read from disk, and the tables made from them."""
