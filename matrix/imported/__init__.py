"""Samples that were measured elsewhere: read strictly, stored as a run, read back in columns."""
