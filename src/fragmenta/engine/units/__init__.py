"""What runs beside the lanes: mbarriers, copies, tensor maps, wgmma, tcgen05.

A unit carries out events that the code of a kernel raises.  Its work is done when a
schedule says so.  An observer follows a launch through one :class:`port.Port`.
"""
