"""All orders of a launch: it is recorded, explored, and the answer is told."""
