"""What the race detector adds to the code of a kernel."""
