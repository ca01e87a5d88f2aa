"""What a handler can come to import: read from the code, so that what is imported on first use is found as well.

An import inside a function counts only where something that is reached mentions the function's name. So a function
that never mentions `embedder` does not get the model, though the module that could load it is shared by all.
"""

import ast
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

CODE = "almagest"


@dataclass
class Reached:
    """What was found.

    Attributes
    ----------
    modules
        Modules of our own, and their files.
    outside
        Modules of others, as they are named in imports.
    """

    modules: dict[str, Path] = field(default_factory=dict)
    outside: set[str] = field(default_factory=set)


@dataclass(frozen=True)
class _Import:
    """A module, perhaps of our own, and the functions around the statement that imports it."""

    module: str
    within: tuple[str, ...]


def reach(root: Path, module: str, function: str = "handler") -> Reached:
    """Follow a handler's imports.

    Parameters
    ----------
    root
        The folder that our own code is imported from.
    module
        The handler's module.
    function
        Its name there.
    """
    found = Reached()
    mentioned = {function}
    waiting = [_Import(module, ())]
    while ready := [each for each in waiting if _is_reached(each, mentioned)]:
        waiting = [each for each in waiting if each not in ready]
        for each in ready:
            for name, file in _own_modules(root, each.module):
                if name not in found.modules:
                    found.modules[name] = file
                    tree = ast.parse(file.read_text("utf-8"))
                    mentioned |= set(_mentioned(tree))
                    waiting += _imports(tree, ())
            if each.module.split(".")[0] != CODE:
                found.outside.add(each.module)
    return found


def _is_reached(found: _Import, mentioned: set[str]) -> bool:
    # Python itself calls what begins with underscores.
    return all(name in mentioned or name.startswith("__") for name in found.within)


def _own_modules(root: Path, module: str) -> Iterator[tuple[str, Path]]:
    """A module and the packages around it; nothing for what is not ours, or only a name in a module."""
    parts = module.split(".")
    for end in range(1, len(parts) + 1):
        base = root.joinpath(*parts[:end])
        for file in (base / "__init__.py", base.with_suffix(".py")):
            if parts[0] == CODE and file.is_file():
                yield ".".join(parts[:end]), file


def _imports(node: ast.AST, within: tuple[str, ...]) -> Iterator[_Import]:
    for child in ast.iter_child_nodes(node):
        if isinstance(child, ast.Import):
            yield from (_Import(alias.name, within) for alias in child.names)
        elif isinstance(child, ast.ImportFrom) and child.module:
            # What is imported may be a module, too.
            yield _Import(child.module, within)
            if child.module.split(".")[0] == CODE:
                yield from (_Import(f"{child.module}.{alias.name}", within) for alias in child.names)
        elif isinstance(child, ast.If) and _is_for_types(child.test):
            continue
        elif isinstance(child, ast.FunctionDef | ast.AsyncFunctionDef):
            yield from _imports(child, (*within, child.name))
        else:
            yield from _imports(child, within)


def _is_for_types(test: ast.expr) -> bool:
    return isinstance(test, ast.Name) and test.id == "TYPE_CHECKING"


def _mentioned(tree: ast.AST) -> Iterator[str]:
    for node in ast.walk(tree):
        if isinstance(node, ast.Name):
            yield node.id
        elif isinstance(node, ast.Attribute):
            yield node.attr
        elif isinstance(node, ast.ImportFrom | ast.Import):
            yield from (alias.name for alias in node.names)
