"""What is unordered, early, or left over while a kernel runs?"""
