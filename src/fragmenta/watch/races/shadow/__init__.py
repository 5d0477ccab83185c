"""Shadow memory and vector clocks, as routines of compiled code."""
