"""See and switch how a GPU is shared: time slicing, MPS and MIG; whatever is switched on can be put back."""
