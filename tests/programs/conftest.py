"""Programs that the tests of this folder share, each built once."""

import shutil
import signal
import subprocess
from pathlib import Path

import pytest

from fragmenta.cuda.tools import assembler
from fragmenta.errors import MissingPackage
from fragmenta.frontends.programs import building

HERE = Path(__file__).parent


@pytest.fixture(scope="session", autouse=True)
def interrupts():
    """A shell makes what it runs in the background deaf to SIGINT, children included."""
    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
        signal.signal(signal.SIGINT, signal.default_int_handler)


@pytest.fixture(scope="session")
def libraries(tmp_path_factory):
    try:
        building.find_compiler()
    except MissingPackage as why:
        pytest.skip(str(why))
    folder = tmp_path_factory.mktemp("client")
    building.build(folder)
    return folder


@pytest.fixture(scope="session")
def driver(libraries):
    """The program for the driver, made by the system's compiler alone."""
    cc = shutil.which("cc") or shutil.which("gcc") or shutil.which("clang")
    if cc is None:
        pytest.skip("no C compiler")
    made = libraries / "driver"
    words = [cc, "-Wall", "-Werror", HERE / "driver.c", "-o", made, "-pthread"]
    words += [libraries / building.DRIVER, f"-Wl,-rpath-link,{libraries}"]
    subprocess.run(list(map(str, words)), check=True)
    return made


@pytest.fixture(scope="session")
def source(libraries):
    try:
        assembler.tool("nvcc")
    except MissingPackage as why:
        pytest.skip(str(why))
    return libraries
