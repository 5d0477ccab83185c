"""What is where in shared memory."""
