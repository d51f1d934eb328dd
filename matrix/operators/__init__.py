"""Operator cases: entries of the catalog, the cases that they make in every type, and their cells."""
