"""The loop over everything a run still needs, and what it takes to stop and resume it anywhere."""
