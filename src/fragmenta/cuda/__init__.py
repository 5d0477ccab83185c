"""How is it written, assembled and launched?"""
