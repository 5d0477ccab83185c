"""``explore`` opens the page, or writes it."""

import webbrowser

from typer.testing import CliRunner

from fragmenta.commands import app
from fragmenta.inspect.view import explorer


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


def test_a_page_that_opens_at_an_instruction(tmp_path):
    where = tmp_path / "movmatrix.html"
    said = run("movmatrix", "-o", str(where))
    assert said.exit_code == 0
    name = "movmatrix.sync.aligned.m8n8.trans.b16"
    assert f"which opens at {name}" in " ".join(said.output.split())
    text = where.read_text(encoding="utf-8")
    mark = '<meta name="first-instruction" content="{}">'
    assert text == explorer.page().replace(mark.format(""), mark.format(name))
    assert text != explorer.page()


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
