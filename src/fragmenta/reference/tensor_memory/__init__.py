"""What is where in tensor memory."""
