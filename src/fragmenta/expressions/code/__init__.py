"""The code that carries hashes along: the algebra, and what is done beside instructions."""
