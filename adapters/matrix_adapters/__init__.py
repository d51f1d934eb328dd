"""Worker side of Framework Matrix: one fresh process, one framework, one launch.

Nothing here imports the orchestrator (`matrix`); the orchestrator imports only
`matrix_adapters.protocol`. Needs the standard library, NumPy and the one
framework that the adapter at hand is about.
"""
