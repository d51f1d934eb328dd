"""One module per command: `configure` adds its arguments, `execute` does it and returns the exit code."""
