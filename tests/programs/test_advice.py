"""Nothing advises ``nvcc -arch=compute_...``.

For ``-arch=compute_90a`` nvcc compiles for compute_90, too, where kernels with ``wgmma``
or ``tcgen05`` do not build.
"""

from pathlib import Path

HERE = Path(__file__).parents[2]


def test_nobody_is_advised_to_compile_twice() -> None:
    pages = [*(HERE / "docs").rglob("*.md"), HERE / "README.md"]
    code = (HERE / "src" / "fragmenta").rglob("*.py")
    wrong = {
        str(each.relative_to(HERE))
        for each in (*pages, *code)
        if "nvcc -arch=compute_" in each.read_text()
    }
    assert wrong == set()
