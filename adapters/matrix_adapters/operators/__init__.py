"""Single operators: how a case's tensors are made, stored and computed, and how each framework runs it."""
