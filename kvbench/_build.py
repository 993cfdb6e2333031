"""How the compiled core is built; used by setuptools alone, never at run time.

Every ``kvbench/**/*.pyx`` is an extension module, so a new policy file needs no entry anywhere.
(setuptools asks pyproject.toml whether there are extensions at all; one is named there, the
rest are found here.)

Environment:

``KVBENCH_DEBUG=1``     bounds checks and the invariant checks of the replay are compiled in.
``KVBENCH_SANITIZE=1``  AddressSanitizer is compiled in (implies the debug checks).
"""

from __future__ import annotations

import os
import shutil
import sys
from pathlib import Path

from setuptools import Extension
from setuptools.command.build_ext import build_ext
from setuptools.errors import CCompilerError, CompileError, ExecError, PlatformError

PACKAGE = Path(__file__).parent
ROOT = PACKAGE.parent

RELEASE_FLAGS = ["-O3", "-fno-strict-aliasing", "-fno-plt"]
# A fused multiply-add rounds once where others round twice: simulated times would differ between machines.
SAME_EVERYWHERE = ["-ffp-contract=off"]
DEBUG_FLAGS = ["-O1", "-g1", "-UNDEBUG"]  # lines are enough for a stack trace, and build faster
SANITIZE_FLAGS = ["-fsanitize=address", "-fno-omit-frame-pointer"]
# Cython's generated code trips these; real mistakes in the core show under -Wall without them.
QUIET_FLAGS = ["-Wno-unused-function", "-Wno-unreachable-code", "-Wno-maybe-uninitialized"]


def flag(name: str) -> bool:
    return os.environ.get(name, "0") not in ("", "0")


def extensions() -> list[Extension]:
    """One extension module for each ``.pyx`` file of the package."""
    sanitize = flag("KVBENCH_SANITIZE")
    debug = flag("KVBENCH_DEBUG") or sanitize
    compile_args = (DEBUG_FLAGS if debug else RELEASE_FLAGS) + SAME_EVERYWHERE + QUIET_FLAGS
    link_args: list[str] = []
    if sanitize:
        compile_args = compile_args + SANITIZE_FLAGS
        link_args = SANITIZE_FLAGS
    return [
        Extension(
            ".".join(source.relative_to(ROOT).with_suffix("").parts),
            [str(source.relative_to(ROOT))],
            include_dirs=[str(PACKAGE.relative_to(ROOT))],
            define_macros=[("KVBENCH_DEBUG", "1")] if debug else [],
            extra_compile_args=compile_args,
            extra_link_args=link_args,
        )
        for source in sorted(PACKAGE.rglob("*.pyx"))
    ]


class BuildCore(build_ext):
    """``build_ext`` that finds the core's files and says plainly when there is no C compiler."""

    parallel: int | None
    build_temp: str
    kept: Path

    def finalize_options(self) -> None:
        from Cython.Build import cythonize

        kind = "sanitize" if flag("KVBENCH_SANITIZE") else "debug" if flag("KVBENCH_DEBUG") else "release"
        debug = kind != "release"
        self.distribution.ext_modules = cythonize(
            extensions(),
            build_dir=str(Path("build") / f"cython-{kind}"),
            compiler_directives={
                "language_level": 3,
                "boundscheck": debug,
                "wraparound": False,
                "initializedcheck": debug,
                "cdivision": True,
                "embedsignature": True,
                "embedsignature.format": "python",
            },
            quiet=True,
            # Translating takes a third of the build; forking is not safe everywhere.
            nthreads=(os.cpu_count() or 1) if sys.platform == "linux" else 0,
        )
        super().finalize_options()
        self.parallel = self.parallel or os.cpu_count()
        # Objects of the builds differ by flags only, which distutils does not look at.
        self.build_temp = f"{self.build_temp}-{kind}"
        self.kept = Path("build") / f"modules-{kind}"

    def build_extension(self, ext: Extension) -> None:
        """Compile one module; or take the one that an earlier build, of another kind of install, has made."""
        target = Path(self.get_ext_fullpath(ext.name))
        kept = self.kept / target.name.replace(target.name.split(".")[0], ext.name, 1)
        made_of = [*ext.sources, *ext.depends, __file__]
        if kept.exists() and kept.stat().st_mtime > max(Path(file).stat().st_mtime for file in made_of):
            target.parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(kept, target)
            return
        super().build_extension(ext)
        self.kept.mkdir(parents=True, exist_ok=True)
        shutil.copy2(target, kept)

    def build_extensions(self) -> None:
        try:
            super().build_extensions()
        except (CCompilerError, CompileError, ExecError, PlatformError, OSError) as error:
            raise SystemExit(
                "kvbench: building from source needs a working C compiler and Python's headers "
                "(Debian: apt install gcc python3-dev; macOS: xcode-select --install). "
                f"The compiler said: {error}"
            ) from error
