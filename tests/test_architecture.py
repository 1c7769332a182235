"""The shape of the package: which way imports point, what its files may not contain, and how little `import emc` loads."""

from __future__ import annotations

import ast
import importlib.metadata
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from packaging.requirements import Requirement
from packaging.specifiers import SpecifierSet

ROOT = Path(__file__).resolve().parent.parent
SOURCES = sorted((ROOT / "emc").rglob("*.py"))

# Each stage may import from the stages before it and from its own package, never sideways.
STAGES = (
    {"errors"},
    {"files", "allocator"},
    {"types", "user_input", "processes"},
    {"plugins", "flags"},
    {"lanes"},
    {"parts", "nets", "schedules", "optimisers", "envs", "statistics"},
    {"mixers", "sampling", "suite"},
    {"losses"},
    {"policies"},
    {"memory"},
    {"curiosity"},
    {"methods"},
    {"training", "reference"},
    {"runs", "interop"},
    {"configuration"},
    {"sweeps"},
    {"report", "display", "loggers"},  # show what runs write
    {"api"},
    {"claims"},
    {"demo"},
    {"__init__"},
    {"doctor"},
    {"commands"},
    {"cli"},
    {"__main__"},
)
STAGE_OF = {name: stage for stage, names in enumerate(STAGES) for name in names}


def imported_modules(path: Path) -> Iterator[str]:
    """Every module that a file imports, at any depth of it; relative imports start with a dot."""
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.level:
            yield "." * node.level
        elif isinstance(node, ast.ImportFrom):
            yield from (f"{node.module}.{alias.name}" for alias in node.names)


def unit_of_file(path: Path) -> str:
    """The file's top-level module or package inside `emc`."""
    return path.relative_to(ROOT / "emc").parts[0].removesuffix(".py")


def unit_of_import(module: str) -> str:
    """The top-level module or package inside `emc` that an import reaches; `__init__` for the public names of `emc` itself."""
    inside = module.split(".")[1:2]
    return inside[0] if inside and inside[0] in STAGE_OF else "__init__"


@pytest.mark.parametrize("path", SOURCES, ids=lambda path: str(path.relative_to(ROOT)))
def test_imports_point_one_way(path: Path) -> None:
    unit = unit_of_file(path)
    assert unit in STAGE_OF, f"{unit} has no place in STAGES: give it one, and show it in docs/architecture.md"
    for module in imported_modules(path):
        assert not module.startswith("."), f"{path.name} uses a relative import"
        assert module.split(".")[0] not in {"tests", "experiments", "benchmarks"}, f"{path.name} imports {module}"
        if module.split(".")[0] == "emc":
            target = unit_of_import(module)
            assert target == unit or STAGE_OF[target] < STAGE_OF[unit], f"{unit} imports {module}, which comes later or stands beside it"


@pytest.mark.parametrize("path", SOURCES, ids=lambda path: str(path.relative_to(ROOT)))
def test_nothing_is_pickled(path: Path) -> None:
    assert "pickle" not in path.read_text(encoding="utf-8").lower()
    tops = {module.split(".")[0] for module in imported_modules(path)}
    assert not tops & {"dill", "joblib", "marshal", "shelve"}


OPENED_HERE = {  # beside files.py, which opens all files of runs: what is read there is not a run's, or no file
    "allocator.py": "a setting of the kernel",
    "training/plan.py": "what the system says of its memory",
    "claims/catalogue.py": "claims, which are programs",
    "commands/docs.py": "our own pages",
    "report/page.py": "our own style and script",
    "suite/tasks.py": "our own measurements",
    "cli.py": "a device that takes all",
    "commands/messages.py": "a device that takes all",
    "runs/lock.py": "a folder, to be locked",
    "training/checkpoint.py": "what files.py has opened, once more, for the library of its format",
}


def opened_in(path: Path) -> Iterator[str]:
    """Calls that open a file by its name; what `written_whole` hands out is called `beside` everywhere."""
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        match node:
            case ast.Call(func=ast.Name(id="open")):
                yield "open"
            case ast.Call(func=ast.Attribute(value=ast.Name(id="beside"))):
                pass
            case ast.Call(func=ast.Attribute(attr="read_text" | "read_bytes" | "write_text" | "write_bytes" as name)):
                yield name
            case ast.Call(func=ast.Attribute(value=ast.Name(id="os" | "io" as module), attr="open")):
                yield f"{module}.open"
            case ast.Call(func=ast.Attribute(value=ast.Call() | ast.BinOp() | ast.Name(id="path" | "file"), attr="open")):
                yield "path.open"
            case ast.Call(func=ast.Name(id="safe_open" | "load_file" | "save_file" as name)):
                yield name
            case _:
                pass


def test_files_are_opened_in_one_place() -> None:
    found = {str(path.relative_to(ROOT / "emc")): [*opened_in(path)] for path in SOURCES}
    assert len(found["files.py"]) > 0
    assert {name for name, calls in found.items() if calls} - {"files.py"} == {*OPENED_HERE}


def project_texts() -> Iterator[Path]:
    """Every text file that the project writes by hand."""
    made = {".git", ".venv", ".hypothesis", ".pytest_cache", ".ruff_cache", ".jax_cache", "__pycache__", "runs", "demo", "dist", "results"}
    for folder in sorted(path for path in ROOT.iterdir() if path.name not in made and not path.name.startswith(".venv")):
        for path in [folder] if folder.is_file() else sorted(folder.rglob("*")):
            inside = path.relative_to(ROOT).parts
            if path.is_file() and not (made - {"runs", "demo", "results"}) & set(inside) and path.stat().st_size < 2**21:
                yield path


FOLDERS = "|".join(("home", "root", "Users", "tmp", "work", "opt", "mnt", "srv"))
MACHINE_PATH = re.compile(rf"(?<![\w.~)}}\]/-])/(?:{FOLDERS})/\w|\b[A-Z]:\\{{1,2}}Users")
REGISTRY = re.compile("|".join(map(re.escape, ("pypi" + ".org", "python" + "hosted.org", "npm" + "js.org", "conda" + ".io"))))


def test_no_file_names_a_machine_or_a_registry() -> None:
    assert MACHINE_PATH.search('"/ho' + 'me/someone"')
    assert MACHINE_PATH.search("C:\\Us" + "ers")
    for path in project_texts():
        try:
            text = path.read_text(encoding="utf-8")
        except UnicodeDecodeError:
            continue  # an image
        for pattern in (MACHINE_PATH, REGISTRY):
            found = pattern.search(text)
            assert found is None, f"{path.relative_to(ROOT)} contains {found.group()!r}"


def test_importing_the_package_loads_no_plotting_and_no_command_line() -> None:
    heavy = ("matplotlib", "tyro", "rich", "PIL", "scipy", "tensorboardX", "emc.cli", "emc.commands", "emc.report")
    program = f"import sys, jax, equinox, optax; old = {{*sys.modules}}; import emc; print(*({{*{heavy}}} & ({{*sys.modules}} - old)))"
    result = subprocess.run([sys.executable, "-c", program], cwd=ROOT, capture_output=True, text=True, check=True)
    assert result.stdout.split() == []


def test_every_version_that_is_installed_by_default_runs_on_the_oldest_python_that_is_promised() -> None:
    """Also on its first patch release: Debian 12 has 3.11.2, where a package that wants 3.11.5 leaves nothing to install."""
    oldest = re.search(r'requires-python = ">=(3\.\d+)"', (ROOT / "pyproject.toml").read_text())
    assert oldest is not None
    pins = [Requirement(line) for line in (ROOT / "constraints.txt").read_text().splitlines() if "==" in line]
    assert len(pins) > 50
    installed = {pin.name: importlib.metadata.metadata(pin.name) for pin in pins if _is_there(pin)}
    assert len(installed) > 50
    too_new = {name for name, about in installed.items() if f"{oldest[1]}.0" not in SpecifierSet(about.get("Requires-Python") or "")}
    assert not too_new


def _is_there(pin: Requirement) -> bool:
    try:
        return importlib.metadata.version(pin.name) in pin.specifier
    except importlib.metadata.PackageNotFoundError:
        return False  # of an extra that is not installed here
