"""The extension module; kvbench's .pxd files, which it cimports, are installed beside its code."""

from pathlib import Path

from Cython.Build import cythonize
from setuptools import Extension, setup

import kvbench

HERE = str(Path(kvbench.__file__).parents[1])

setup(
    ext_modules=cythonize(
        [
            Extension(
                "kvbench_example_cython.policy",
                ["kvbench_example_cython/policy.pyx"],
                include_dirs=[f"{HERE}/kvbench"],
            )
        ],
        include_path=[HERE],
        build_dir="build",
    )
)
