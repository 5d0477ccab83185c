"""Elements, words, layouts and fragments; nothing about instructions."""
