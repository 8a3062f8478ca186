"""What `pip install .` has installed: the program and the package, of one version, without dependencies."""

import importlib.metadata as metadata
import subprocess
import sys
from pathlib import Path

import pyprof_advise

assert "torch" not in sys.modules
assert Path(pyprof_advise.__file__).is_relative_to(sys.prefix), pyprof_advise.__file__
assert Path(pyprof_advise.__file__).with_name("py.typed").is_file()
assert [name for name in metadata.requires("pyprof-advise") or () if "extra ==" not in name] == []
assert metadata.version("pyprof-advise") == pyprof_advise.__version__
program = Path(sys.executable).with_name("pyprof-advise")
said = subprocess.run([program, "--version"], capture_output=True, text=True, check=True).stdout
assert said.split()[:2] == ["pyprof-advise", pyprof_advise.__version__], said
report = pyprof_advise.advise(sys.argv[1], options=("--gpu", "v100"))
assert report.to("markdown").startswith("# "), str(report)
assert report.save("advice.html").read_text().startswith("<!doctype html>")
print("checked")
