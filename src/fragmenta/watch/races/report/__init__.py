"""What was found, in words."""
