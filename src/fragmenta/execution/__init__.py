"""What are the results, and why?"""
