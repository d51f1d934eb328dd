"""Operator cases: the catalog's entries, the cases they make, and the files that a case is run from."""
