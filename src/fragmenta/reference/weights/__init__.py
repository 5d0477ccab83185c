"""Orders of quantised weights, so that a lane loads its elements with wide loads."""
