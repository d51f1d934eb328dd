"""From stored runs to a verdict: rows of paired values, what cannot be paired, and what it all says."""
