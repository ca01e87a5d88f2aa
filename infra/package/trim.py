"""What of a wheel is left out: what no function runs, and what the measurement shows to be unused.

Only kinds of files are named here whose absence cannot be felt: a module that is not loaded stays, since code that the
measurement did not come by may load it.
"""

import re
from collections.abc import Iterable
from pathlib import Path

# Tests, types for checkers, sources of what is compiled.
_NEVER_RUN = re.compile(r"(^|/)(tests?|include)/|\.(pyi|pyx|pxd|c|h|hpp|cpp|a|lib)$|(^|/)py\.typed$")
# Descriptions of AWS' services: botocore reads those of the services that are called, and the lists beside them.
_SERVICE = re.compile(r"(botocore|boto3)/data/([^/]+)/")
# Libraries that extension modules are linked to; one that is not mapped belongs to none that was loaded. Another build
# of the same wheel has another hash in their names.
_LIBRARY = re.compile(r"(?:^|/)(lib[^/]+?)(-[0-9a-f]{8,})?\.so(\.[\d.]+)?$")


def kept(files: Iterable[Path], used: set[Path]) -> list[Path]:
    """Return what of a wheel's files goes along.

    Parameters
    ----------
    files
        All, relative to where they are unpacked.
    used
        Those that were read or mapped when the handler ran, perhaps of the wheel's build for another Python.
    """
    services = {found[0] for file in used if (found := _SERVICE.match(file.as_posix()))}
    libraries = {found[1] for file in used if (found := _LIBRARY.search(file.as_posix()))}

    def is_kept(file: Path) -> bool:
        name = file.as_posix()
        if service := _SERVICE.match(name):
            return service[0] in services
        if library := _LIBRARY.search(name):
            return library[1] in libraries
        return file in used or not _NEVER_RUN.search(name)

    return [file for file in files if is_kept(file)]
