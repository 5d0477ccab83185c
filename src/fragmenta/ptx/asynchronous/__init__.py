"""What do the copy engine, the tensor cores and mbarriers do, and when?"""
