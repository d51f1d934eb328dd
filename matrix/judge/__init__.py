"""Judging works on arrays and stored records only, so any result can be judged anywhere."""
