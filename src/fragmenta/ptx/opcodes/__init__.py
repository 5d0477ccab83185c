"""Which PTX instructions are there, and what does each of them mean?"""
