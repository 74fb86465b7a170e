"""MIG: profiles of a GPU, layouts that fit, and commands that create and destroy the instances."""
