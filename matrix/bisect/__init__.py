"""Finding the first bad version: what is known so far, the search, and who is guilty in the end."""
