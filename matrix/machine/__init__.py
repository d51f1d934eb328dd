"""This machine: what it is, what it has, how busy it is, and what would spoil a measurement."""
