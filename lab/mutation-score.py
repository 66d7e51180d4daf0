#!/usr/bin/env python3
"""Writes the result of one part of a mutation run to docs/contributing/mutation-score.md.

Usage: mutation-score.py PART COMMIT DIRECTORY, where DIRECTORY has `all.txt` and `mutants.out/` of cargo-mutants.
The page keeps the rows of other parts and the explanations of survivors, which are written by hand. A survivor that
a later run finds killed is removed. The exit status is 1 if a survivor has no explanation.
"""

import datetime
import pathlib
import re
import sys

PAGE = pathlib.Path("docs/contributing/mutation-score.md")
UNEXPLAINED = "not explained"

HEAD = """\
# Mutation score

`lab/mutants.sh`, a part of `make soak`, changes one expression of the product at a time and runs the tests of its crate. A mutant
is *caught* if a test fails, *missed* if all pass, and *not viable* if it does not compile. Each run takes the mutants of
a part in random order until its time ends, so the score is that of a sample. The parts and their files are listed in the script.

| part | mutants | tested | caught | timeouts | missed | not viable | commit | date |
| --- | --- | --- | --- | --- | --- | --- | --- | --- |
"""

SURVIVORS = """
## Survivors

A missed mutant that does not change the observable behavior, or whose effect only tests of other crates observe, stays here with
its explanation.

| mutant | explanation |
| --- | --- |
"""


def cells(line):
    return [cell.strip() for cell in line.strip().strip("|").split(" | ")]


def read_page():
    """Returns the rows of parts and the explanations of survivors by their names."""
    parts, survivors, is_survivor = {}, {}, False
    for line in PAGE.read_text(encoding="utf-8").splitlines() if PAGE.exists() else []:
        is_survivor = is_survivor or line.startswith("## Survivors")
        if not line.startswith("| ") or line.startswith(("| ---", "| part", "| mutant")):
            continue
        row = cells(line)
        if is_survivor:
            survivors[row[0].strip("`")] = row[1]
        else:
            parts[row[0]] = row
    return parts, survivors


def outcomes(directory, name):
    """Returns the mutants of one outcome, with their names as code on a page."""
    path = directory / "mutants.out" / f"{name}.txt"
    lines = path.read_text(encoding="utf-8").splitlines() if path.exists() else []
    return [re.sub(r"^([^:]+)(:\d+)*: ", r"\1: ", line).replace("|", "¦").replace("`", "'") for line in lines]


def main():
    part, commit, directory = sys.argv[1], sys.argv[2], pathlib.Path(sys.argv[3])
    parts, survivors = read_page()
    caught, timeouts, missed, unviable = (
        outcomes(directory, name) for name in ("caught", "timeout", "missed", "unviable")
    )
    tested = len(caught) + len(timeouts) + len(missed)
    if tested == 0:
        sys.exit(f"no mutant of {part} was tested; the baseline may have failed: {directory}")
    total = len((directory / "all.txt").read_text(encoding="utf-8").splitlines())
    today = datetime.date.today().isoformat()
    counts = [total, tested, len(caught), len(timeouts), len(missed), len(unviable)]
    parts[part] = [part, *map(str, counts), f"`{commit}`", today]
    for mutant in [*caught, *timeouts]:
        survivors.pop(mutant, None)
    for mutant in missed:
        survivors.setdefault(mutant, UNEXPLAINED)

    def column(index):
        return sum(int(row[index]) for row in parts.values())

    tested, killed = column(2), column(3) + column(4)
    dates = sorted(row[8] for row in parts.values())
    commits = ", ".join(sorted({row[7].strip("`") for row in parts.values()}))
    score = f"Score: {killed} of {tested} tested mutants were caught ({100 * killed // tested} %), {len(survivors)} survivors, of {commits}, {dates[-1]}."
    text = HEAD + "".join(f"| {' | '.join(parts[name])} |\n" for name in sorted(parts))
    text += SURVIVORS + "".join(f"| `{name}` | {why} |\n" for name, why in sorted(survivors.items()))
    PAGE.write_text(text + f"\n{score}\n", encoding="utf-8")
    print(score)
    unexplained = [name for name, why in survivors.items() if why == UNEXPLAINED]
    for name in unexplained:
        print(f"survivor without explanation: {name}", file=sys.stderr)
    sys.exit(1 if unexplained else 0)


main()
