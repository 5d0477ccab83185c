"""What orders wgmma and holds no matrices: in the catalogue, on every surface."""

import json

import pytest
from typer.testing import CliRunner

import fragmenta as fm
from fragmenta.commands import app
from fragmenta.cuda.source import emit
from fragmenta.cuda.tools import assembler
from fragmenta.reference.isa.sync import NAME

OPS = list(fm.catalogue(NAME))
FENCE = fm.find("wgmma.fence")
WAIT = fm.find("wgmma.wait_group")


def ask(*words):
    return CliRunner().invoke(app, [str(word) for word in words])


def test_what_there_is():
    assert [str(op) for op in OPS] == [
        "wgmma.fence.sync.aligned",
        "wgmma.commit_group.sync.aligned",
        "wgmma.wait_group.sync.aligned",
        "fence.proxy.async",
        "fence.proxy.async.global",
        "fence.proxy.async.shared::cta",
        "fence.proxy.async.shared::cluster",
    ]
    assert str(FENCE.requires) == "PTX 8.0, sm_90a"
    assert fm.find("fence.proxy").supported_on("sm_120")
    assert not fm.find("fence.proxy").supported_on("sm_89")
    assert [str(each) for each in WAIT.operands] == [
        "N: an integer constant, 0 or more"
    ]


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("wgmma.fance.sync.aligned", r"did you mean fence\?"),
        (
            "wgmma.sync.aligned",
            ".mma_async, .fence, .commit_group or .wait_group comes",
        ),
        ("fence.proxy.async.shared", "does not belong after fence.proxy.async"),
        ("fence.acq_rel.gpu", "not covered, except fence.proxy.async"),
        (
            "bar.sync 0;",
            "bar is an instruction of PTX, but not one of the Tensor Cores",
        ),
        ("mbarrier.init.shared.b64 [a], 1;", "mbarrier is not covered yet; sm_80 and"),
    ],
)
def test_what_is_not_there_is_refused_by_name_and_reason(text, said):
    with pytest.raises(fm.errors.UnknownInstruction, match=said):
        fm.instruction(text)


@pytest.mark.parametrize("op", OPS, ids=str)
def test_emitted_ptx_assembles(op):
    assert assembler.assemble(op.to_ptx(), op.requires.targets[-1])


def test_wait_group_takes_its_number():
    assert "wgmma.wait_group.sync.aligned 2;" in WAIT.to_ptx(N=2)
    assert "template <int N = 0>" in WAIT.to_cuda()
    for wrong in (-1, 1.5, "2"):
        with pytest.raises(fm.Error, match=r"N .* is not legal"):
            WAIT.to_ptx(N=wrong)


def test_a_header_has_each_function_once():
    ops = [fm.wgmma("m64n8k32", a="s8"), *OPS]
    for text in (emit.header(ops), emit.header(OPS)):
        for name in ("wgmma_fence", "wgmma_wait_group", "fence_proxy_async"):
            assert text.count(f"void {name}()") == 1
        assert text.count("void fence_proxy_async_shared_cta()") == 1


@pytest.mark.parametrize("do", ["draw", "formula", "explore"])
def test_there_is_nothing_to_look_at(do):
    answer = ask(do, "wgmma.fence")
    assert answer.exit_code == 2
    assert (
        "wgmma.fence.sync.aligned holds no matrices: there is nothing to"
        in " ".join(answer.stderr.split())
    )


@pytest.mark.parametrize(
    "words",
    [
        ("where", "wgmma.fence", "A", 0, 0),
        ("holds", "wgmma.fence", "D", 0),
        ("table", "wgmma.fence", "A"),
        ("which", "wgmma.fence", 0, 0),
        ("matmul", "wgmma.fence", "a.npy", "b.npy"),
        ("explain", "wgmma.fence", "a.npy", "b.npy", "--row", 0, "--col", 0),
        ("sparsity", "wgmma.fence", "a.npy"),
        ("shared", "wgmma.fence", "A"),
        ("verify", "--family", "sync"),
    ],
)
def test_every_other_command_refuses_in_one_message(words):
    answer = ask(*words)
    assert answer.exit_code == 2, answer.output
    assert answer.exception is None or isinstance(answer.exception, SystemExit)
    assert answer.stderr.startswith(("Error:", "Usage:"))


def test_show_and_list():
    text = ask("show", "wgmma.fence").stdout
    assert "operands  none" in text
    assert "shape" not in text
    about = json.loads(ask("show", "wgmma.wait_group", "--json").stdout)
    assert about["shape"] is None
    assert about["operands"]["operands"][0]["name"] == "N"
    listed = ask("list", "--family", "sync").stdout.split()
    assert listed == [str(op) for op in OPS]
    assert "wgmma.fence" not in ask("list", "--shape", "*").stdout
    brief = json.loads(ask("list", "--family", "sync", "--json").stdout)
    assert brief["instructions"][0]["shape"] is None


def test_python_says_so_too():
    assert FENCE._repr_svg_() is None
    assert not FENCE.fragments
    for wrong in (
        lambda: FENCE.shape,
        lambda: FENCE.a,
        FENCE.to_svg,
        lambda: FENCE(1, 2, 3),
        lambda: FENCE.execute(1, 2, 3),
        lambda: FENCE.explain(1, 2, 3, row=0, col=0),
        lambda: FENCE.on_device(1, 2, 3),
        lambda: fm.matmul(FENCE, [[1]], [[1]]),
        lambda: fm.sparse.compress(FENCE, [[1]]),
        lambda: fm.shared.tile(FENCE, "A", [[1]]),
    ):
        with pytest.raises(fm.Error, match=r"wgmma\.fence|sync takes other operands"):
            wrong()
