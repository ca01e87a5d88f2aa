"""The machine that artefacts are for, and which wheels fit it."""

import sys
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property

from packaging.tags import Tag, compatible_tags, cpython_tags

HERE = f"{sys.version_info.major}.{sys.version_info.minor}"
# Amazon Linux 2023 has glibc 2.34; what is built for an older one runs there too.
_GLIBC = 34
_OLD_NAMES = {5: "manylinux1", 12: "manylinux2010", 17: "manylinux2014"}


@dataclass(frozen=True)
class Target:
    """A version of CPython on Linux with glibc on x86_64: Lambda's, unless a test wants this machine's.

    Attributes
    ----------
    python
        `3.13`, say.
    """

    python: str = "3.13"

    @property
    def version(self) -> tuple[int, int]:
        """Major and minor number."""
        major, minor = self.python.split(".")
        return int(major), int(minor)

    @property
    def cache_tag(self) -> str:
        """What is in the names of compiled modules."""
        return "cpython-{}{}".format(*self.version)

    @cached_property
    def platforms(self) -> list[str]:
        """Platform tags, best first."""
        names = []
        for minor in range(_GLIBC, 4, -1):
            names.append(f"manylinux_2_{minor}_x86_64")
            if minor in _OLD_NAMES:
                names.append(f"{_OLD_NAMES[minor]}_x86_64")
        return [*names, "linux_x86_64"]

    @cached_property
    def tags(self) -> frozenset[Tag]:
        """Tags of all wheels that run there."""
        version = self.version
        interpreter = f"cp{version[0]}{version[1]}"
        return frozenset(
            [*cpython_tags(version, platforms=self.platforms), *compatible_tags(version, interpreter, self.platforms)]
        )

    @property
    def environment(self) -> Mapping[str, str]:
        """What markers of requirements are evaluated with."""
        return {
            "python_version": self.python,
            "python_full_version": f"{self.python}.0",
            "implementation_name": "cpython",
            "platform_python_implementation": "CPython",
            "os_name": "posix",
            "sys_platform": "linux",
            "platform_system": "Linux",
            "platform_machine": "x86_64",
        }

    @property
    def pip_options(self) -> list[str]:
        """Options that let pip fetch for this machine instead of its own."""
        version = "".join(map(str, self.version))
        platforms = [option for name in self.platforms for option in ("--platform", name)]
        abis = ["--abi", f"cp{version}", "--abi", "abi3", "--abi", "none"]
        return ["--python-version", self.python, "--implementation", "cp", *abis, *platforms]
