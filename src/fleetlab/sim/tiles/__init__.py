"""A schedule as a picture: GPU time by row and bin of time, at any zoom; rows are GPUs, nodes or groups of nodes."""
