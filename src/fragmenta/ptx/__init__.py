"""What does a whole kernel do?"""
