"""How much correlation one step carries: I(k; X_s), total correlation, and their ceilings."""
