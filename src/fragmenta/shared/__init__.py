"""What lies where in shared memory?"""
