"""Records the steps of a launch: what each instruction wrote, and where.

    code      the instrument: what compiled code writes down
    log       the memory in which a launch writes it down
    keeping   which pieces of it are kept
    told      the record of a launch, as it is handed on
    noted     reads what machine code wrote down of units
    holding   puts steps of warps that were held at a product to where they were held
    gathering puts together what units and barriers did, when it is asked for
    recorder  which clusters are recorded, and what it hears of units in Python

A launch that is not recorded loads none of this.
"""
