"""How an environment is built, and how a worker is started in it: one module per backend."""
