"""How is a sparse A stored, made and exchanged?"""
