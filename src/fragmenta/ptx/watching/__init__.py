"""What is unordered, early, or left over in a kernel that runs?"""
