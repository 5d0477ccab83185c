"""The options of all commands, one line each: the value it takes, and its meaning.

An option that several commands have takes the same value and means the same in all of
them.  A command's own help says more.  An option in the plural takes several values
with commas between them; other options take one, and some may be repeated.

The value is empty for a flag and CHOICE for one of a few words.  The tests compare this
table with the options that the commands declare, and the reference is written from it.
"""

from __future__ import annotations

from typing import Annotated, NamedTuple

import typer

AsJson = Annotated[bool, typer.Option("--json", help="Print JSON.")]


class Option(NamedTuple):
    """What an option takes and means."""

    value: str
    meaning: str


OPTIONS = {
    "--a": Option("TYPE", "the type of A"),
    "--a-registers": Option("", "A of wgmma comes from registers"),
    "--a-tensor": Option("", "A of tcgen05.mma comes from tensor memory"),
    "--access": Option("CHOICE", "how a warp reads a tile of shared memory"),
    "--address": Option("ADDRESS", "where an operand begins in tensor memory"),
    "--allow": Option("FOLDER", "a folder whose files a server may read"),
    "--along": Option("CHOICE", "the dimension along which an ldmatrix loads more"),
    "--arg": Option("ARGUMENT", "an argument of a kernel"),
    "--b": Option("TYPE", "the type of B"),
    "--bits": Option("INTEGER", "the bits of an element"),
    "--block": Option("X[,Y[,Z]]", "threads of a block"),
    "--blocks": Option("NUMBERS", "the blocks of the grid that are recorded"),
    "--by": Option("CHOICE", "what each line of a table is about"),
    "--card": Option("CARD", "the card that a program sees, such as h100"),
    "--cases": Option("KINDS", "the kinds of values that inputs have"),
    "--cluster": Option("X[,Y[,Z]]", "blocks of a cluster"),
    "--col": Option("INTEGER", "a column of a matrix"),
    "--column": Option("INTEGER", "a column of tensor memory"),
    "--compare": Option("CHOICE", "the reference to compare a result with"),
    "--compress": Option("", "store only the values that are kept, and their codes"),
    "--contiguous": Option("", "try no inputs with gaps, or transposed"),
    "--cooperative": Option("", "all blocks of the grid run at the same time"),
    "--copy": Option("CHOICE", "how a tile is written to shared memory"),
    "--counters": Option("", "count memory traffic"),
    "--cta": Option("INTEGER", "a CTA of a pair"),
    "--cta-group": Option("INTEGER", "how many CTAs multiply together"),
    "--d": Option("TYPE", "the type of D"),
    "--dap": Option("", "speak the Debug Adapter Protocol"),
    "--dequantize": Option("", "write the numbers that a quantised file stands for"),
    "--execute": Option("COMMAND", "a command of the debugger"),
    "--family": Option("FAMILY", "only instructions of this family"),
    "--flags": Option("FLAGS", "flags for the compiler of a .cu file"),
    "--force": Option("", "overwrite files that exist"),
    "--format": Option("CHOICE", "the format of a table"),
    "--full": Option("", "print everything"),
    "--function": Option("CHOICE", "the CUDA function to print"),
    "--given": Option("", "try the given sizes only"),
    "--grid": Option("X[,Y[,Z]]", "blocks of the grid"),
    "--header": Option("", "write one .cuh file"),
    "--idesc": Option("WORD", "the instruction descriptor of a tcgen05.mma"),
    "--inner": Option("CHOICE", "the dimension along which the next block lies"),
    "--input": Option("normal|uniform|A B", "random numbers, or two files"),
    "--isolated": Option("", "launch in a process of its own"),
    "--jobs": Option("INTEGER", "processes that compute"),
    "--json": Option("", "print JSON"),
    "--k": Option("INTEGER", "the size along k, which a sum runs over"),
    "--k-steps": Option("INTEGER", "steps along k in one load"),
    "--kernel": Option("", "write a whole kernel"),
    "--kernels": Option("REGEX", "the kernels of a program that are meant"),
    "--kind": Option("KIND", "the kind of a tcgen05.mma"),
    "--lane": Option("INTEGER", "a lane"),
    "--language": Option("CHOICE", "the language of the code to print"),
    "--launch": Option("FILE", "the PTX file of a launch to record"),
    "--launches": Option(
        "INTEGER", "launches of a kernel that are meant, or of a process"
    ),
    "--layout": Option("LINE", "an order of elements in memory, as a line"),
    "--limit": Option("N", "warp instructions that a launch may run"),
    "--list": Option("", "list the kernels of a file"),
    "--load-bytes": Option("INTEGER", "bytes that a lane loads at once"),
    "--long": Option("", "also print PTX versions and targets"),
    "--major": Option("CHOICE", "the dimension along which elements are contiguous"),
    "--markdown": Option("FILE", "where a page is written"),
    "--memory": Option("BYTES", "memory that a launch, or a candidate, may use"),
    "--most": Option("N", "inputs of an element, of which all are run"),
    "--n-steps": Option("INTEGER", "tiles along n in one load"),
    "--name": Option("VARIABLE=NAME", "what a variable is called"),
    "--nibbles": Option("ORDER", "the order of 4-bit codes in a word"),
    "--no-check": Option("", "do not look for problems"),
    "--no-contract": Option("", "do not fuse products and sums"),
    "--no-watch": Option("", "do not watch launches"),
    "--num": Option("CHOICE", "how many matrices an ldmatrix loads"),
    "--numerics": Option("", "find out where bits are lost"),
    "--operand": Option("CHOICE", "the operand that a matrix is"),
    "--orders": Option("", "explore all orders of a launch"),
    "--output": Option("FILE", "where the result is written"),
    "--over": Option("SIZES", "the sizes that are compared"),
    "--pack": Option("FILE", "the codes to pack into words"),
    "--packed": Option("", "write the bytes that cuBLAS takes"),
    "--pad": Option("", "fill the last chunk with zeros"),
    "--path": Option("", "draw the way of the operands through the memories"),
    "--per": Option("WHAT", "which elements share a scale"),
    "--pitch": Option("BYTES", "the distance from one row to the next"),
    "--plot": Option("FILE", "where a plot is written"),
    "--port": Option("N", "the port of this machine on which an editor connects"),
    "--printed": Option("N", "characters that a kernel may print"),
    "--problems": Option("raise|report", "whether problems end a launch"),
    "--program": Option("", "record the launches of a program"),
    "--prune": Option("", "keep the largest values of each chunk"),
    "--register": Option("INTEGER", "a register of a lane"),
    "--replay": Option(
        "PATH", "where launches of a program are recorded, or the steps of a launch"
    ),
    "--replay-beside": Option("FILE[=NAME]", "a run to be put beside a replay"),
    "--replay-from": Option("STEP", "the first step of a launch that is kept"),
    "--report": Option("FILE", "where the report about a program is written"),
    "--row": Option("INTEGER", "a row of a matrix"),
    "--rows": Option("INTEGER", "the size of a tile along m or n"),
    "--rule": Option("RULE", "how block scales are chosen"),
    "--runs": Option("INTEGER", "measurements to take the median of"),
    "--sarif": Option("FILE", "where the problems are written as SARIF; - prints them"),
    "--save": Option("INDEX=FILE", "where the array of an argument is written"),
    "--save-schedule": Option("FILE", "where the turns of a run are written"),
    "--scale": Option("TYPE", "the type of block scales"),
    "--scale-a": Option("FILE", "the block scales of A"),
    "--scale-b": Option("FILE", "the block scales of B"),
    "--scale-vec": Option("SIZE", "how many elements share a block scale"),
    "--scales": Option("FILE", "the scales to reorder"),
    "--schedule": Option("WHEN", "when asynchronous work is done; the order of warps"),
    "--schedules": Option("WHEN,...", "several schedules to compare"),
    "--script": Option("FILE", "a file with commands of the debugger"),
    "--seconds": Option("S", "the time that a launch, or a candidate, may take"),
    "--seed": Option("INTEGER", "the seed of random numbers"),
    "--selector": Option("INTEGER", "the sparsity selector"),
    "--set": Option("FIELD", "a field of an instruction descriptor"),
    "--shape": Option("SHAPE", "the shape of an instruction"),
    "--shared": Option("BYTES", "dynamic shared memory of a block"),
    "--size": Option("KxN", "rows and columns of a weight"),
    "--socket": Option("PATH", "where a server listens"),
    "--source": Option("NAME", "the order of elements that is repacked"),
    "--sp": Option("", "A is sparse"),
    "--states": Option("N", "the most states of a launch that are explored"),
    "--stdio": Option("", "serve the standard streams"),
    "--strict": Option("", "also report what only some sources demand"),
    "--suggest": Option("", "search for a swizzle or padding without conflicts"),
    "--svg": Option("FILE", "where two expressions are drawn where they part"),
    "--swizzle": Option("BYTES", "the swizzle of shared memory"),
    "--target": Option("TARGET", "a GPU: sm_90a, hopper, h100"),
    "--targets": Option("TARGETS", "several GPUs to compare"),
    "--tensor-scale": Option("NUMBER", "the second scale of nvfp4"),
    "--tiles": Option("INTEGER", "random tiles of each instruction"),
    "--timeline": Option("FILE", "where a picture of a cluster's work is written"),
    "--to": Option("CHOICE", "the type that codes are converted to"),
    "--tolerance": Option("WARNING[,ERROR]", "errors of outputs that are reported"),
    "--tries": Option("N", "inputs that are tried if expressions differ"),
    "--type": Option("TYPE", "only instructions with an operand of this type"),
    "--types": Option("NAME=TYPE,...", "which floats the numbers of arrays are"),
    "--unpack": Option("FILE", "the words to unpack into codes"),
    "--values": Option("FILE", "the matrix whose values are drawn"),
    "--warp": Option("INTEGER", "a warp of a warpgroup"),
    "--with": Option("OPERAND", "an operand that may be left out"),
    "--witness": Option("FILE.npz", "where inputs for which bits differ are written"),
    "--workers": Option(
        "INTEGER", "launches, or candidates, that run at the same time"
    ),
    "--ws": Option("", "the weight-stationary form of tcgen05.mma"),
    "--zero": Option("INTEGER", "the zero point of all codes"),
    "--zeros": Option("FILE", "the zero points to pack"),
}

# ── the limits of launches, which several commands have ─────────────────────

Seconds = Annotated[
    float,
    typer.Option("--seconds", metavar="S", help="The time that a launch may take."),
]
Memory = Annotated[
    int | None,
    typer.Option(
        "--memory",
        metavar="BYTES",
        help="What a launch may use; by default all that the machine has.",
        show_default=False,
    ),
]
Printed = Annotated[
    int,
    typer.Option("--printed", metavar="N", help="Characters that a kernel may print."),
]
Limit = Annotated[
    int | None,
    typer.Option(
        "--limit",
        metavar="N",
        help="Warp instructions that a launch may run.",
        show_default=False,
    ),
]
