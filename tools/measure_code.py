"""Print how much there is to read: lines of code, modules a search loads, names met twice.

    python tools/measure_code.py                 # this checkout
    python tools/measure_code.py --laboratory experiments 'cli/bench*' …   # another layout

Code lines are those that hold code: no blanks, no comments, no docstrings.
"""

from __future__ import annotations

import argparse
import ast
import io
import os
import subprocess
import sys
import tokenize
from collections import Counter, defaultdict
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
FIND = ["find", "--data", "synthetic", "--row", "828", "--llm", "simulated:1"]
MOST_LINES = 500
_NO_CODE = {
    tokenize.COMMENT, tokenize.NL, tokenize.NEWLINE, tokenize.INDENT, tokenize.DEDENT,
    tokenize.ENCODING, tokenize.ENDMARKER,
}  # fmt: skip
Function = ast.FunctionDef | ast.AsyncFunctionDef


def docstring_lines(tree: ast.AST) -> set[int]:
    """Return the lines of strings that stand alone: docstrings of modules, functions, fields."""
    found: set[int] = set()
    for node in ast.walk(tree):
        alone = node.value if isinstance(node, ast.Expr) else None
        if isinstance(alone, ast.Constant) and isinstance(alone.value, str):
            found |= set(range(alone.lineno, (alone.end_lineno or alone.lineno) + 1))
    return found


def code_and_comments(source: str, tree: ast.AST) -> tuple[int, int]:
    """Return how many lines hold code, and how many a comment."""
    code: set[int] = set()
    comments: set[int] = set()
    for token in tokenize.generate_tokens(io.StringIO(source).readline):
        if token.type == tokenize.COMMENT:
            comments.add(token.start[0])
        if token.type not in _NO_CODE:
            code |= set(range(token.start[0], token.end[0] + 1))
    return len(code - docstring_lines(tree)), len(comments)


def used_once(tree: ast.Module) -> list[str]:
    """Return the private functions of a file that one other place of it uses."""
    uses: Counter[str] = Counter()
    for node in ast.walk(tree):
        if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Load):
            uses[node.id] += 1
        elif isinstance(node, ast.Attribute):
            uses[node.attr] += 1
    private = (n.name for n in ast.walk(tree) if isinstance(n, Function) and n.name[0] == "_")
    return [name for name in private if name[:2] != "__" and uses[name] == 1]


def loaded_modules(package: Path) -> list[str]:
    """Return the modules of ours that one search on the command line loads."""
    script = (
        "import sys\n"
        f"sys.argv = ['waysout', *{FIND!r}]\n"
        "from waysout.cli.main import main\n"
        "try:\n    main()\nexcept SystemExit:\n    pass\n"
        "ours = sorted(n for n in sys.modules if n.split('.')[0] == 'waysout')\n"
        "print('\\nLOADED', *ours)\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", script],
        env={**os.environ, "PYTHONPATH": str(package.parent)},
        capture_output=True, text=True, check=True,
    )  # fmt: skip
    return done.stdout.rpartition("LOADED")[2].split()


def main() -> None:
    """Measure, and print."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--package", type=Path, default=ROOT / "src" / "waysout")
    parser.add_argument("--laboratory", nargs="*", default=["bench"], metavar="GLOB")
    parser.add_argument("--names", action="store_true", help="list what is counted")
    given = parser.parse_args()
    package: Path = given.package
    in_lab = {file for glob in given.laboratory for file in package.glob(glob)}
    in_lab |= {file for folder in in_lab if folder.is_dir() for file in folder.rglob("*.py")}

    lines: Counter[str] = Counter()
    classes: defaultdict[str, list[str]] = defaultdict(list)
    once: list[str] = []
    files, functions, comments, long = 0, 0, 0, []
    for file in sorted(package.rglob("*.py")):
        source = file.read_text("utf-8")
        tree = ast.parse(source)
        files += 1
        place = str(file.relative_to(package))
        code, commented = code_and_comments(source, tree)
        lines["laboratory" if file in in_lab else "product"] += code
        comments += commented
        if source.count("\n") > MOST_LINES:
            long.append(place)
        for node in tree.body:
            if isinstance(node, ast.ClassDef) and not node.name.startswith("_"):
                classes[node.name].append(place)
        functions += sum(isinstance(node, Function) for node in ast.walk(tree))
        once += [f"{place}:{name}" for name in used_once(tree)]
    twice = {name: places for name, places in classes.items() if len(places) > 1}
    modules = loaded_modules(package)

    print(f"files                          {files:7,}")
    print(f"code lines, product            {lines['product']:7,}")
    print(f"code lines, laboratory         {lines['laboratory']:7,}")
    print(f"comment lines per code line    {comments / lines.total():7.1%}")
    print(f"functions                      {functions:7,}")
    print(f"private helpers used once      {len(once):7,}   {len(once) / functions:.0%}")
    print(f"public class names met twice   {len(twice):7,}")
    print(f"files above {MOST_LINES} lines          {len(long):7,}")
    print(f"modules one find loads         {len(modules):7,}")
    if given.names:
        print("\nused once:", *once, sep="\n  ")
        print("\ntwice:", *(f"{name}: {', '.join(p)}" for name, p in twice.items()), sep="\n  ")
        print("\nlong:", *long, "\nloaded:", *modules, sep="\n  ")


if __name__ == "__main__":
    main()
