"""How many tenants of one kind a GPU can take: their number is raised until something breaks."""
