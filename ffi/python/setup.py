"""Notes in the wheel which tree it was built from, so that the installed module finds its libscr.so."""

import pathlib

from setuptools import setup
from setuptools.command.build_py import build_py


class BuildWithTree(build_py):
    def run(self):
        super().run()
        tree = pathlib.Path(__file__).resolve().parents[3]
        pathlib.Path(self.build_lib, "_scr_tree.py").write_text(f"TREE = {str(tree)!r}\n")


setup(cmdclass={"build_py": BuildWithTree}, py_modules=["scr"])
