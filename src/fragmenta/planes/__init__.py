"""Second values beside every register and memory: their transport."""
