"""Records the steps of a launch: what each instruction wrote, and where.

    code      the instrument: what compiled code writes down
    log       the memory in which a launch writes it down
    keeping   which pieces of it are kept
    recorder  which clusters are recorded, and what units and barriers did
    told      the record of a launch, as it is handed on

A launch that is not recorded loads none of this.
"""
