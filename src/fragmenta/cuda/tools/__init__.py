"""What assembles, compiles and launches it?"""
