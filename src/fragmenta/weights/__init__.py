"""How is a weight stored so that a lane loads it with wide loads?"""
