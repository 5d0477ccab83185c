"""Does ``explore`` open the page, or write it?"""

import webbrowser

from typer.testing import CliRunner

from fragmenta.commands import app
from fragmenta.view import explorer


def run(*arguments):
    return CliRunner().invoke(app, ["explore", *arguments])


def test_command_writes_the_page(tmp_path):
    where = tmp_path / "explorer.html"
    assert run("-o", str(where)).exit_code == 0
    assert where.read_text(encoding="utf-8") == explorer.page()
    again = run("-o", str(where))
    assert again.exit_code == 2
    assert "--force" in again.output
    assert run("-o", str(where), "--force").exit_code == 0
    both = run("movmatrix", "-o", str(tmp_path / "other.html"))
    assert both.exit_code == 2
    assert "has every instruction; leave out 'movmatrix'" in " ".join(
        both.output.split()
    )


def test_command_opens_the_browser(monkeypatch):
    opened = []
    monkeypatch.setattr(webbrowser, "open", lambda url: opened.append(url) or True)
    op = "mma.sp::ordered_metadata.sync.aligned.m16n8k64.row.col.s32.s4.s4.s32"
    assert run(op).exit_code == 0
    assert opened[0].startswith("file:")
    assert opened[0].endswith(f"#op={op}")
    monkeypatch.setattr(webbrowser, "open", lambda url: False)
    failed = run()
    assert failed.exit_code == 2
    assert "-o explorer.html" in " ".join(failed.output.split())
