"""What a launch computes beside its bits, and how much.

expressions  what is computed, as a tree
numerics     exact values beside the rounded ones
counters     what hardware counts: instructions, bytes, conflicts
"""
