"""What does a GPU answer, and do we?"""
