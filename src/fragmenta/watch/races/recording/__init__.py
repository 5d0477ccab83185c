"""Records what synchronises the threads of a launch."""
