"""A debugger of recorded launches, which goes forwards and backwards.

    values       numbers, registers by lane, elements of memory
    expressions  a small language, with a parser of its own
    moments      the steps of a recording by warp, by line and by call
    records      units, barriers and problems
    places       lines, functions and bytes that people name
    scope        what names mean at a moment
    nans         the steps that give NaN
    debugger     :class:`Debugger`: where it stands, where it stops, what it sees
    fragments    the operands of the last product
    told         what it tells, in words
    terminal     commands, one in a line
    dap          the Debug Adapter Protocol

Nothing here reads or writes a stream: the room ``commands`` does.
"""
