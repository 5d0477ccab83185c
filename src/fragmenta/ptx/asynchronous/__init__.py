"""What do copies, Tensor Cores and mbarriers do beside the threads, and when?"""
