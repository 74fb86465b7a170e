"""What Volcano and KAI have in common: gangs on nodes, decisions that can be taken back, and a simulation in time."""
