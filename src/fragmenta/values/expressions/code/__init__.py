"""The code that carries hashes along: the algebra, and steps beside instructions."""
