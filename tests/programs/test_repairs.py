"""Hints about calls of CUDA: the repair that each names ends its report."""

import json
from typing import NamedTuple

import pytest

from tests.programs.test_programs import HERE, run

pytestmark = pytest.mark.xdist_group("programs")


class Wrong(NamedTuple):
    """A program that is told a word, its rule, its hints, and what repairs it."""

    file: str
    word: str
    rule: str
    hint: str
    repair: tuple[tuple[str, str], ...]
    status: int = 1


FREED = (
    # Once: by the destructor, which comes after the last use.
    ('    printf("%d ", cudaFree(wrong));\n', ""),
    ("        if (count == 1) cuda", "        LAST_USES\n        if (count == 1) cuda"),
    (
        '    printf("%d ", cudaMemcpy(host, wrong + 4, 16, cudaMemcpyDeviceToHost));\n',
        "",
    ),
    ('    printf("%d ", cudaMemcpy(wrong, host, 16, cudaMemcpyDefault));\n', ""),
    ('    printf("%d ", cudaMemset(wrong, 0, 16));\n', ""),
    (
        "LAST_USES",
        "cudaMemcpy(host, a.data + 4, 16, cudaMemcpyDeviceToHost);"
        "cudaMemcpy(a.data, host, 16, cudaMemcpyDefault);"
        "cudaMemset(a.data, 0, 16);",
    ),
)
WRONG = {
    "freed": Wrong(
        "freed.cu", "wrong", "freed", "Free it once, and after its last use.", FREED
    ),
    "past the end": Wrong(
        "past_end.cu",
        "more",
        "copied-past-end",
        "Copy no more bytes than were allocated; sizes count bytes, not elements.",
        (("count > 1 ? 40 : 32", "32"),),
        status=0,
    ),
    "wrong way": Wrong(
        "wrong_way.cu",
        "back",
        "copied-wrong-way",
        "Name the direction that the copy has, or cudaMemcpyDefault.",
        (("cudaMemcpyHostToDevice); // the wrong one", "cudaMemcpyDeviceToHost);"),),
        status=0,
    ),
    "refused": Wrong(
        "refused.cu",
        "goes on",
        "refused-launch",
        "Look at cudaGetLastError() after the launch.",
        (('    if (!strcmp(words[1], "asks")) printf', "    printf"),),
    ),
}


@pytest.mark.long
@pytest.mark.parametrize("name", WRONG)
def test_the_repair_of_a_call_ends_the_report(source, tmp_path, name):
    case = WRONG[name]
    code = (HERE / case.file).read_text()
    program = tmp_path / case.file
    program.write_text(code)
    done = run("--json", program, case.word, status=case.status)
    said = json.loads(done.stdout[done.stdout.index("{") :])["calls"]
    assert {(each["rule"], each["hint"]) for each in said} == {(case.rule, case.hint)}
    for old, new in case.repair:
        assert code.count(old) == 1
        code = code.replace(old, new)
    program.write_text(code)
    done = run("--json", program, case.word)
    assert json.loads(done.stdout[done.stdout.index("{") :])["calls"] == []
