"""What happens beside the threads of a kernel, and when?"""
