"""MIG: a card cut into instances, each with compute and memory of its own; which cuts are possible, made and undone."""
