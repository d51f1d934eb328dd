"""What a user asks for: the sweep file, strictly read, and models of one's own."""
