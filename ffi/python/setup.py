"""Notes in the wheel which tree it was built from, so that the installed module finds its libscr.so."""

import os
import pathlib
import tempfile

from setuptools import setup
from setuptools.command.build_py import build_py

#: Whoever installs the module need not own the tree: what is built on the way goes elsewhere. Removed at the end.
SCRATCH = tempfile.TemporaryDirectory()


class BuildWithTree(build_py):
    def run(self):
        super().run()
        # A module in a folder of its own, since only there a mark says that it has types.
        folder = pathlib.Path(self.build_lib, "scr")
        folder.mkdir()
        pathlib.Path(self.build_lib, "scr.py").rename(folder / "__init__.py")
        (folder / "py.typed").touch()
        # The tree that this file lies in. Older versions of pip copy the file away from there before they build.
        trees = [*map(str, pathlib.Path(__file__).resolve().parents)][3:4] + [os.environ.get("SCR_DIR")]
        for tree in filter(None, trees):
            if any(pathlib.Path(tree).glob("lib*/libscr.so")):
                pathlib.Path(self.build_lib, "_scr_tree.py").write_text(f"TREE = {tree!r}\n")
                return


setup(
    cmdclass={"build_py": BuildWithTree},
    options={"build": {"build_base": SCRATCH.name}, "egg_info": {"egg_base": SCRATCH.name}},
    py_modules=["scr"],
)
