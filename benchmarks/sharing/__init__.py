"""The tables of docs/measurements/sharing.md, from the cells that were measured on the H200."""
