"""What is an array here, and who works on which part of it?"""
