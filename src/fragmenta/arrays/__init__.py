"""What is an array here, and which thread works on which part of it?"""
