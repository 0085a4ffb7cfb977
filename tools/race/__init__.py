"""A race to stated returns on the same cores, ours against what people run."""
