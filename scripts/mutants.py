#!/usr/bin/env python3
"""Mutation testing of what decides which bytes a restart hands out.

    scripts/mutants.py [--sample N] [--seed S] [--folders fetch,restart] [--again] [--list]

A copy of the sources gets all mutants of the sample at once, each behind a number: the variable
SCR_TEST_MUTANT activates one. So the tests are built once. Each test runs by itself then and records
which mutants it reaches, and each mutant is given to those tests that reach it: unit tests of its own
folder, other unit tests, and whole jobs, until one fails. A test that fails is run again without the
mutant; it kills the mutant only if it passes then. `--again` tries only those that survived the last time.

scripts/mutants.allow lists mutants that change nothing, each with the reason.
"""

import argparse
import collections
import concurrent.futures
import hashlib
import json
import os
import pathlib
import re
import signal
import subprocess
import sys
import tempfile
import threading
import time

ROOT = pathlib.Path(__file__).resolve().parent.parent
WORK = ROOT / "target" / "mutants"
COPY = WORK / "src"
ALLOWED = ROOT / "scripts" / "mutants.allow"
FOLDERS = "fetch restart rebuild redundancy cache prefix flush comm scavenge striping".split()
STAGES = ["the units of the folders", "all units", "whole jobs"]
# The folders of the sources that are changed, each with its crate.
CRATES = {"core/src": "scr_core", "core/prefix/src": "scr_prefix", "core/comm/src": "scr_comm",
          "plugins/striping/src": "scr_striping"}


def folder_of(crate_dir, inside):
    """As a user names it: a crate of its own, or a folder of core."""
    return inside.parts[0].removesuffix(".rs") if crate_dir == "core/src" else crate_dir.split("/")[1]


SWITCH = """//! The mutants of this build: see scripts/mutants.py.
#![allow(warnings, clippy::all)]
use std::io::Write;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering::Relaxed};

const UNKNOWN: u32 = u32::MAX;
const RECORD: u32 = u32::MAX - 1;
static ACTIVE: AtomicU32 = AtomicU32::new(UNKNOWN);
static SEEN: [AtomicBool; 20000] = [const { AtomicBool::new(false) }; 20000];

fn active() -> u32 {
    let known = ACTIVE.load(Relaxed);
    if known != UNKNOWN {
        return known;
    }
    let asked = std::env::var("SCR_TEST_MUTANT").unwrap_or_default();
    let now = if asked.starts_with('/') { RECORD } else { asked.parse().unwrap_or(0) };
    ACTIVE.store(now, Relaxed);
    now
}

fn record(n: u32) {
    if !SEEN[n as usize].swap(true, Relaxed) {
        let Ok(path) = std::env::var("SCR_TEST_MUTANT") else { return };
        if let Ok(mut file) = std::fs::OpenOptions::new().append(true).create(true).open(path) {
            let _ = file.write_all(format!("{n}\\n").as_bytes());
        }
    }
}

pub(crate) fn is(n: u32) -> bool {
    let now = active();
    if now == RECORD {
        record(n);
    }
    now == n
}
pub(crate) fn lt<T: PartialOrd + ?Sized>(n: u32, a: &T, b: &T) -> bool {
    if is(n) { a <= b } else if is(n + 1) { a >= b } else { a < b }
}
pub(crate) fn le<T: PartialOrd + ?Sized>(n: u32, a: &T, b: &T) -> bool {
    if is(n) { a < b } else if is(n + 1) { a > b } else { a <= b }
}
pub(crate) fn gt<T: PartialOrd + ?Sized>(n: u32, a: &T, b: &T) -> bool {
    if is(n) { a >= b } else if is(n + 1) { a <= b } else { a > b }
}
pub(crate) fn ge<T: PartialOrd + ?Sized>(n: u32, a: &T, b: &T) -> bool {
    if is(n) { a > b } else if is(n + 1) { a < b } else { a >= b }
}
pub(crate) fn add<T: std::ops::Add<Output = T> + std::ops::Sub<Output = T>>(n: u32, a: T, b: T) -> T {
    if is(n) { a - b } else { a + b }
}
pub(crate) fn sub<T: std::ops::Add<Output = T> + std::ops::Sub<Output = T>>(n: u32, a: T, b: T) -> T {
    if is(n) { a + b } else { a - b }
}
pub(crate) fn rem<T: std::ops::Rem<Output = T> + std::ops::Div<Output = T>>(n: u32, a: T, b: T) -> T {
    if is(n) { a / b } else { a % b }
}
pub(crate) fn div<T: std::ops::Rem<Output = T> + std::ops::Div<Output = T>>(n: u32, a: T, b: T) -> T {
    if is(n) { a % b } else { a / b }
}
"""

# ---- finding mutants -------------------------------------------------------------------------------------------------

TOKEN = re.compile(
    r"(?P<word>\w+)|(?P<op>\.\.=|\.\.|::|->|=>|==|!=|<=|>=|&&|\|\||[-+*/%&|^]=|<<=|>>=|[^\s\w])"
)
PRECEDENCE = {"*": 11, "/": 11, "%": 11, "+": 10, "-": 10, "&": 8, "^": 7, "|": 6}
PRECEDENCE |= {op: 5 for op in ("==", "!=", "<", ">", "<=", ">=")} | {"&&": 4, "||": 3}
STOPS = {",", ";", "=>", "=", "..", "..=", "->", ":", "+=", "-=", "*=", "/=", "%=", "&=", "|=", "^=", "@", "#"}
KEYWORDS = {"if", "while", "return", "match", "in", "else", "let", "break", "for", "loop", "unsafe", "mut", "move"}
INTEGERS = {f"{sign}{bits}" for sign in "iu" for bits in (8, 16, 32, 64, 128, "size")}
SWAPPED = {"==": "!=", "!=": "==", "&&": "||", "||": "&&", "+": "-", "-": "+", "%": "/", "/": "%"}
HELPERS = {"+": "add", "-": "sub", "%": "rem", "/": "div"}
ORDERS = {"<": ("lt", "<=", ">="), "<=": ("le", "<", ">"), ">": ("gt", ">=", "<="), ">=": ("ge", ">", "<")}


def masked(text):
    """The text with comments as blanks and literals as words, each of the same length."""
    pattern = re.compile(
        r'//[^\n]*|/\*.*?\*/|b?r(#*)".*?"\1|b?"(?:\\.|[^"\\])*"|b?\'(?:\\.[^\']*|[^\\\'])\'', re.S
    )

    def cover(found):
        piece = found.group()
        fill = " " if piece.startswith("/") else "S"
        return re.sub(r"[^\n]", fill, piece) if fill == " " else "S" * len(piece)

    return pattern.sub(cover, text)


def closing(text, at):
    """The place of the bracket that closes the one here."""
    depth = 0
    for place in range(at, len(text)):
        if text[place] in "([{":
            depth += 1
        elif text[place] in ")]}":
            depth -= 1
            if depth == 0:
                return place
    return len(text) - 1


def item_end(text, at):
    """The end of an item that begins here: its closing brace, or its semicolon."""
    while at < len(text):
        if text[at] in "([":
            at = closing(text, at)
        elif text[at] == "{":
            return closing(text, at)
        elif text[at] == ";":
            return at
        at += 1
    return len(text) - 1


def without_attributes(text):
    """Blanks instead of attributes, and of items that are for tests, constant, or macros."""
    out = list(text)

    def blank(start, end):
        for place in range(start, end + 1):
            if out[place] != "\n":
                out[place] = " "
    for found in re.finditer(r"#!?\[", text):
        end = closing(text, found.end() - 1)
        if re.match(r"#\[cfg\((any\(|all\()?test", text[found.start():]):
            end = item_end(text, end + 1)
        blank(found.start(), end)
    text = "".join(out)
    for found in re.finditer(r"\bmacro_rules!|\bconst fn\b", text):
        blank(found.start(), item_end(text, found.start()))
    for found in re.finditer(r"\b(const|static)( mut)? \w+:", text):
        blank(found.start(), text.index(";", found.end()) if "{" not in text[found.end():text.index(";", found.end())]
              else closing(text, text.index("{", found.end())))
    return "".join(out)


class Token:
    __slots__ = ("text", "start", "end", "spaced", "pair")

    def __init__(self, text, start, end, spaced):
        self.text, self.start, self.end, self.spaced, self.pair = text, start, end, spaced, None


def tokens_of(text):
    tokens, stack = [], []
    for found in TOKEN.finditer(text):
        before = text[found.start() - 1:found.start()]
        after = text[found.end():found.end() + 1]
        token = Token(found.group(), found.start(), found.end(), before in " \n" and after in " \n")
        if token.text in "([{" and len(token.text) == 1:
            stack.append(len(tokens))
        elif token.text in ")]}" and len(token.text) == 1 and stack:
            token.pair = stack.pop()
            tokens[token.pair].pair = len(tokens)
        tokens.append(token)
    return tokens


def ends_operand(token):
    if re.match(r"\w", token.text):
        return token.text not in KEYWORDS
    return token.text in (")", "]", "}", "?")


def is_binary(tokens, at):
    token = tokens[at]
    return token.text in PRECEDENCE and token.spaced and at > 0 and ends_operand(tokens[at - 1])


def left_of(tokens, at, precedence):
    """The first token of the left operand, and what comes before it."""
    place = at - 1
    if tokens[place].text == "}":
        return None
    while place >= 0:
        token = tokens[place]
        if token.text in (")", "]", "}"):
            following = tokens[place + 1].text
            if token.text == "}" and following not in (".", "?") and not is_binary(tokens, place + 1):
                break
            if token.pair is None:
                return None
            place = token.pair - 1
            # `match x { … }` and the like have a head before their braces.
            if token.text == "}" and not (place >= 0 and re.match(r"[A-Z]", tokens[place].text)):
                return None
            continue
        if token.text in ("(", "[", "{") or token.text in STOPS or token.text in KEYWORDS:
            break
        if token.text in ("|", "||") and not is_binary(tokens, place):
            break
        if is_binary(tokens, place) and PRECEDENCE[token.text] < precedence:
            break
        if token.text in ("<", ">") and token.spaced and precedence >= 5 and place != at:
            break
        place -= 1
    return place + 1


def in_head(tokens, at):
    """Whether this is in the head of an `if`, `while`, `match` or `for`, where a brace begins a block."""
    while at >= 0:
        text = tokens[at].text
        if text in (")", "]", "}") and tokens[at].pair is not None:
            if text == "}":
                return False
            at = tokens[at].pair - 1
            continue
        if text in ("if", "while", "match", "in"):
            return True
        if text in ("(", "[", "{", ";", ",", "=>"):
            return False
        at -= 1
    return False


def right_of(tokens, at, precedence):
    """The token after the right operand."""
    place = at + 1
    head = None
    if tokens[place].text in KEYWORDS or tokens[place].text in ("|", "||"):
        return None
    while place < len(tokens):
        token = tokens[place]
        if token.text == "{":
            head = in_head(tokens, at) if head is None else head
            if head:
                break
            if not re.match(r"[A-Z]", tokens[place - 1].text):
                return None
        if token.text in ("(", "[", "{"):
            if token.pair is None:
                return None
            place = token.pair + 1
            continue
        if token.text in (")", "]", "}") or token.text in STOPS:
            break
        if token.text in KEYWORDS:
            break
        if token.text in ("|", "||") and not is_binary(tokens, place):
            return None
        if is_binary(tokens, place) and PRECEDENCE[token.text] <= precedence:
            break
        place += 1
    return place


class Mutant:
    def __init__(self, file, folder, line, text, change, edits, precedence):
        self.file, self.folder, self.line, self.text, self.change = file, folder, line, text, change
        # The insertions: (place, text, whether it closes, length of what it wraps). `$n` is the number.
        self.edits, self.precedence = edits, precedence
        self.n, self.key = 0, ""


def wrap(start, end, before, after):
    return [(start, before, False, end - start), (end, after, True, end - start)]


def order(edit, precedence):
    """At one place comes first what closes, the narrowest first; then what opens, the widest first."""
    place, _, closes, width = edit
    return (place, 0, width, -precedence) if closes else (place, 2 if closes is None else 1, -width, precedence)


def operators(tokens, make):
    for at, token in enumerate(tokens):
        op = token.text
        if op == "!" and at + 1 < len(tokens) and not (at and tokens[at - 1].end == token.start
                                                      and re.match(r"\w", tokens[at - 1].text)):
            place = at + 1
            while place < len(tokens) and tokens[place].text in ("*", "&", "!"):
                place += 1
            place += 1
            if tokens[place - 1].text == "(":
                place = tokens[place - 1].pair + 1
            elif not re.match(r"\w", tokens[place - 1].text) or tokens[place - 1].text in KEYWORDS:
                continue
            while place < len(tokens):
                text = tokens[place].text
                if text in (".", "::"):
                    place += 2
                elif text == "?" or text == "!" and tokens[place].start == tokens[place - 1].end:
                    place += 1
                elif text in ("(", "[") and tokens[place].start == tokens[place - 1].end:
                    place = tokens[place].pair + 1
                else:
                    break
            end = tokens[place - 1].end
            make(token, "without `!`", wrap(token.start, end, "(", " ^ crate::mutant::is($n))"), 12)
            continue
        if not is_binary(tokens, at) or op not in SWAPPED and op not in ORDERS:
            continue
        precedence = PRECEDENCE[op]
        first, after = left_of(tokens, at, precedence), right_of(tokens, at, precedence)
        if first is None or after is None or first >= at or after <= at + 1:
            continue
        if op == "&&":
            if tokens[at + 1].text == "let":
                continue
            if tokens[first - 1].text == "=":
                back = first - 1
                while back > 0 and tokens[back].text not in ("let", ";"):
                    back -= 1
                if tokens[back].text == "let" and tokens[back - 1].text in ("if", "while", "&&"):
                    continue
        start, end = tokens[first].start, tokens[after - 1].end
        left, right = (start, tokens[at - 1].end), (tokens[at + 1].start, end)
        if op in ("==", "!="):
            make(token, f"`{op}` -> `{SWAPPED[op]}`", wrap(start, end, "((", ") ^ crate::mutant::is($n))"), precedence)
        elif op in ("&&", "||"):
            is_n = " ^ crate::mutant::is($n))"
            edits = wrap(start, end, "((", ")" + is_n) + wrap(*left, "((", ")" + is_n) + wrap(*right, "((", ")" + is_n)
            make(token, f"`{op}` -> `{SWAPPED[op]}`", edits, precedence)
        elif op in ORDERS:
            helper, boundary, opposite = ORDERS[op]
            edits = wrap(start, end, f"crate::mutant::{helper}($n, ", ")")
            edits += wrap(*left, "&(", ")") + wrap(*right, "&(", ")") + [(token.start, ",", None, 2)]
            make(token, (f"`{op}` -> `{boundary}`", f"`{op}` -> `{opposite}`"), edits, precedence)
        else:
            edits = wrap(start, end, f"crate::mutant::{HELPERS[op]}($n, ", ")") + [(token.start, ",", None, 1)]
            make(token, f"`{op}` -> `{SWAPPED[op]}`", edits, precedence)


def defaults(kind):
    """What a function of this type could give at once."""
    kind = kind.strip()
    plain = {"bool": ["true", "false"], "()": ["()"], "": [""], "String": ["String::new()"]}
    if kind in plain:
        return plain[kind]
    if kind in INTEGERS:
        return ["0", "1"]
    if kind.startswith("Option<"):
        return ["None"]
    if kind.startswith("Vec<"):
        return ["Vec::new()"]
    inner = re.match(r"(?:\w+::)*(?:Result|Collective)<(.*)>$", kind, re.S)
    if inner:
        depth, first = 0, inner.group(1)
        for place, char in enumerate(first):
            depth += (char in "<([") - (char in ">)]")
            if char == "," and depth == 0:
                first = first[:place]
                break
        return [f"Ok({value})" for value in defaults(first) if value]
    return []


def find(path, crate_dir):
    """All mutants of a file."""
    text = path.read_text()
    name = str(path.relative_to(ROOT))
    code = without_attributes(masked(text))
    lines = text.split("\n")
    starts = [0]
    for line in lines:
        starts.append(starts[-1] + len(line) + 1)
    inside = path.relative_to(ROOT / crate_dir)
    folder = folder_of(crate_dir, inside)
    found = []

    def make_at(place, changes, edits, precedence):
        line = next(at for at in range(len(starts)) if starts[at + 1] > place)
        changes = changes if isinstance(changes, tuple) else (changes,)
        group = [Mutant(name, folder, line + 1, lines[line].strip(), change, edits, precedence)
                 for change in changes]
        found.append(group)

    covered = []
    for fn in re.finditer(r"\bfn\s+(\w+)", code):
        at = fn.end()
        arrow = None
        while at < len(code) and code[at] not in "{;":
            if code[at] in "([":
                at = closing(code, at)
            elif code[at:at + 2] == "->":
                arrow = at + 2
                at += 1
            at += 1
        if at >= len(code) or code[at] == ";":
            continue
        kind = code[arrow:at].split(" where ")[0].split("\nwhere")[0] if arrow else ""
        end = closing(code, at)
        body = code[at + 1:end].strip()
        # The last `->` may be that of a bound such as `F: Fn() -> bool`.
        if "where" not in code[fn.end():at]:
            for value in defaults(kind):
                if body == value or not body:
                    continue
                edit = [(at + 1, f" if crate::mutant::is($n) {{ return {value}; }}", None, 0)]
                make_at(fn.start(), f"body -> `{value or '()'}`", edit, 0)
        if not any(start < at < stop for start, stop in covered):
            covered.append((at, end))
            piece = " " * (at + 1) + code[at + 1:end]
            operators(tokens_of(piece), lambda token, *rest: make_at(token.start, *rest))
    return found


def all_mutants():
    groups = []
    for crate_dir in CRATES:
        for path in sorted((ROOT / crate_dir).rglob("*.rs")):
            inside = path.relative_to(ROOT / crate_dir)
            names = {part.removesuffix(".rs") for part in inside.parts}
            folder = folder_of(crate_dir, inside)
            # For tests only.
            if folder not in FOLDERS or names & {"tests", "fixtures", "testing", "standins"} or "mpi" in names:
                continue
            groups += find(path, crate_dir)
    seen = collections.Counter()
    for group in groups:
        for mutant in group:
            key = f"{mutant.file} | {mutant.text} | {mutant.change}"
            seen[key] += 1
            mutant.key = key if seen[key] == 1 else f"{key} ({seen[key]})"
    return groups


def sample(groups, many, seed):
    """So many mutants, as even over the folders as they have them."""
    if not many:
        return groups
    rank = lambda group: hashlib.sha256(f"{seed} {group[0].key}".encode()).hexdigest()
    folders = collections.defaultdict(list)
    for group in sorted(groups, key=rank):
        folders[group[0].folder].append(group)
    chosen, count = [], 0
    while count < many and any(folders.values()):
        for left in folders.values():
            if left and count < many:
                chosen.append(left.pop(0))
                count += len(chosen[-1])
    order = {id(group): at for at, group in enumerate(groups)}
    return sorted(chosen, key=lambda group: order[id(group)])


# ---- building --------------------------------------------------------------------------------------------------------

def put(path, text):
    """Writes a file if it is not that already, so that nothing is built twice."""
    data = text if isinstance(text, bytes) else text.encode()
    if not path.is_file() or path.read_bytes() != data:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(data)


def instrumented(text, groups):
    """The text with these mutants in it; and for each line the columns that belong to a mutant."""
    inserts = []
    for group in groups:
        for place, insert, closes, width in group[0].edits:
            insert = insert.replace("$n", str(group[0].n))
            inserts.append((order((place, insert, closes, width), group[0].precedence), insert, place))
    inserts.sort(key=lambda one: one[0])
    out, last = [], 0
    for _, insert, place in inserts:
        out.append(text[last:place])
        out.append(insert)
        last = place
        # An operator that becomes a comma.
        if insert == ",":
            last = place + len(re.match(r"[<>]=|[-+*/%<>]", text[place:]).group())
    out.append(text[last:])
    return "".join(out)


def write_copy(groups):
    files = subprocess.run(["git", "ls-files", "-co", "--exclude-standard"], cwd=ROOT, check=True, capture_output=True,
                           text=True)
    by_file = collections.defaultdict(list)
    for group in groups:
        by_file[group[0].file].append(group)
    roots = {f"{crate}/lib.rs" for crate in CRATES}
    for name in files.stdout.split("\n"):
        source = ROOT / name
        if not name or not source.is_file():
            continue
        if source.is_symlink():
            target = COPY / name
            if not target.is_symlink():
                target.parent.mkdir(parents=True, exist_ok=True)
                target.symlink_to(os.readlink(source))
            continue
        if name in by_file:
            text = instrumented(source.read_text(), by_file[name])
        elif name in roots:
            text = source.read_text()
        else:
            text = source.read_bytes()
        if name in roots:
            text = "#![allow(warnings, clippy::all)]\n" + text + "mod mutant;\n"
        put(COPY / name, text)
        if os.access(source, os.X_OK):
            (COPY / name).chmod(0o755)
    for crate in CRATES:
        put(COPY / crate / "mutant.rs", SWITCH)


def cargo(*args):
    """Runs cargo on the copy: the errors, and the test programs that it has built."""
    env = dict(os.environ, CARGO_TARGET_DIR=str(WORK / "target"), CARGO_INCREMENTAL="1")
    command = ["cargo", *args, "--locked", "--message-format=json"]
    run = subprocess.run(command, cwd=COPY, env=env, capture_output=True, text=True)
    errors, programs = [], {}
    for line in run.stdout.split("\n"):
        message = json.loads(line) if line.startswith("{") else {}
        if message.get("reason") == "compiler-message" and message["message"]["level"].startswith("error"):
            errors.append(message["message"])
        if message.get("executable") and message["profile"]["test"]:
            programs[message["target"]["name"]] = message["executable"]
    if run.returncode and not errors:
        sys.exit(run.stderr)
    return errors, programs


def blamed(errors, groups):
    """The mutants on the lines of these errors."""
    bad = set()
    by_line = collections.defaultdict(set)
    for group in groups:
        text = (ROOT / group[0].file).read_text()
        for place in {edit[0] for edit in group[0].edits}:
            by_line[group[0].file, text.count("\n", 0, place) + 1].add(id(group))
    for error in errors:
        spans = sorted(error["spans"], key=lambda span: not span["is_primary"])
        for span in spans:
            expansion = span
            while expansion.get("expansion"):
                expansion = expansion["expansion"]["span"]
            lines = range(expansion["line_start"], expansion["line_end"] + 1)
            here = set().union(*(by_line[expansion["file_name"], line] for line in lines))
            if here:
                bad |= here
                break
    return bad


def build(groups):
    """Builds what compiles; gives the mutants that it has, and the test programs."""
    # Mutants that did not compile the last time are not tried again.
    known = WORK / "left-out.json"
    left_out = set(json.loads(known.read_text())) if known.is_file() else set()
    groups = [group for group in groups if group[0].key not in left_out]
    for number, mutant in enumerate((mutant for group in groups for mutant in group), 1):
        mutant.n = number
    packages = [word for crate in CRATES.values() for word in ("-p", crate.replace("_", "-"))]
    stages = [("check", *packages, "--lib", "--keep-going"),
              ("test", "--no-run", *packages, "--lib", "--test", "jobs")]
    for stage in stages:
        while True:
            write_copy(groups)
            print(f"{time.strftime('%X')} cargo {stage[0]} with {sum(map(len, groups))} mutants", flush=True)
            errors, programs = cargo(*stage)
            if not errors:
                break
            bad = blamed(errors, groups)
            if not bad:
                sys.exit("\n".join(error["rendered"] for error in errors[:5]))
            left_out |= {group[0].key for group in groups if id(group) in bad}
            known.write_text(json.dumps(sorted(left_out)))
            (WORK / "errors").write_text("\n".join(error["rendered"] for error in errors))
            groups = [group for group in groups if id(group) not in bad]
    print(f"{sum(map(len, groups))} mutants compile", flush=True)
    numbers = {mutant.key: mutant.n for group in groups for mutant in group}
    put(WORK / "built.json", json.dumps({"numbers": numbers, "programs": programs}))
    return groups, programs


def last_build(groups):
    """What the last build has, of sources that may have changed since."""
    built = json.loads((WORK / "built.json").read_text())
    groups = [group for group in groups if all(mutant.key in built["numbers"] for mutant in group)]
    for mutant in (mutant for group in groups for mutant in group):
        mutant.n = built["numbers"][mutant.key]
    return groups, built["programs"]


# ---- running ---------------------------------------------------------------------------------------------------------

class Tests:
    def __init__(self, programs):
        # Units by crate, and whole jobs.
        self.programs = {crate.removeprefix("scr_"): programs[crate] for crate in CRATES.values()}
        self.programs["jobs"] = programs["jobs"]

    def folder(self, kind):
        own = [source for source, crate in CRATES.items() if crate == f"scr_{kind}"]
        return COPY / (own[0].removesuffix("/src") if own else "core")

    def names(self, kind):
        run = subprocess.run([self.programs[kind], "--list", "--format=terse"], cwd=self.folder(kind), check=True,
                             capture_output=True, text=True)
        names = [line.removesuffix(": test") for line in run.stdout.split("\n") if line.endswith(": test")]
        return [name for name in names if not name.startswith("histories::")]

    def run(self, kind, names, mutant, limit, threads="2"):
        """Runs tests until one fails: that one, "" if none does, `None` if the time was up."""
        with tempfile.TemporaryDirectory(dir="/dev/shm", prefix="mutant-") as scratch:
            env = dict(os.environ, TMPDIR=scratch, SCR_TEST_MUTANT=str(mutant))
            command = ["nice", "-n", "5", self.programs[kind], "--exact", "--test-threads", threads, *names]
            command += ["--include-ignored"] if kind == "jobs" else []
            run = subprocess.Popen(command, cwd=self.folder(kind), env=env, stdout=subprocess.PIPE,
                                   stderr=subprocess.DEVNULL, text=True, start_new_session=True)
            late = threading.Event()

            def end():
                try:
                    os.killpg(run.pid, signal.SIGKILL)
                except ProcessLookupError:
                    pass

            def give_up():
                late.set()
                end()

            timer = threading.Timer(limit, give_up)
            timer.start()
            failed = ""
            try:
                for line in run.stdout:
                    # Two tests at a time may share a line.
                    found = re.search(r"test (\S+?)(?: - should panic)? \.\.\. FAILED", line)
                    if found:
                        failed = found.group(1)
                        break
                if failed:
                    end()
                code = run.wait()
            finally:
                timer.cancel()
                end()
            if failed:
                return failed
            if late.is_set():
                return None
            # It ended without a word: an abort, for example.
            return "" if code == 0 else (names[0] if len(names) == 1 else "?")

    def record(self, kind, name):
        with tempfile.NamedTemporaryFile(dir="/dev/shm", prefix="mutant-") as reached:
            begin = time.monotonic()
            failed = self.run(kind, [name], reached.name, 120, "1")
            took = time.monotonic() - begin
            numbers = [int(line) for line in reached.read().split()]
        return failed == "", took, numbers


def nearness(kind, name, folders):
    """Which tests are tried first: units of these folders, then all units, then whole jobs."""
    if kind == "jobs":
        return 2
    return 0 if kind in folders or name.split("::")[0] in folders else 1


def recorded(tests, groups, folders, stage, workers):
    """What each test of a stage reaches, and how long it takes. Those that fail without a mutant count for nothing."""
    place = WORK / "reached.json"
    keys = {mutant.n: mutant.key for group in groups for mutant in group}
    saved = json.loads(place.read_text()) if place.is_file() else {"known": [], "tests": {}}
    if not set(keys.values()) <= set(saved["known"]):
        saved = {"known": sorted(keys.values()), "tests": {}}
    names = [(kind, name) for kind in tests.programs for name in tests.names(kind)
             if nearness(kind, name, folders) == stage]
    new = [(kind, name) for kind, name in names if f"{kind} {name}" not in saved["tests"]]
    print(f"{time.strftime('%X')} {len(new)} tests record what they reach", flush=True)
    with concurrent.futures.ThreadPoolExecutor(workers) as pool:
        for (kind, name), (passed, took, numbers) in zip(new, pool.map(lambda one: tests.record(*one), new)):
            reached = sorted({keys[n] for n in numbers if n in keys})
            saved["tests"][f"{kind} {name}"] = {"passed": passed, "took": took, "reached": reached}
            place.write_text(json.dumps(saved))
            if not passed:
                print(f"left out, since it fails without a mutant: {name}", flush=True)
    by_key = collections.defaultdict(list)
    for kind, name in names:
        test = saved["tests"][f"{kind} {name}"]
        for key in test["reached"] if test["passed"] else ():
            by_key[key].append((kind, name, test["took"]))
    return by_key


def chosen_tests(mutant, reached_by, seconds):
    """The tests for a mutant by program: all of its folder; of others, the fastest of each module, then the next ones."""
    place = collections.Counter()
    order = []
    for test in sorted(reached_by, key=lambda one: one[2]):
        module = test[1].split("::")[0]
        order.append((place[module], test))
        place[module] += 1
    spent, chosen = 0.0, collections.defaultdict(list)
    for _, (kind, name, took) in sorted(order):
        if nearness(kind, name, [mutant.folder]) == 0 or spent + took <= seconds:
            chosen[kind].append(name)
            spent += took
    return [(kind, names, spent) for kind, names in chosen.items()]


def outcome_of(mutant, tests, reached_by, options):
    for kind, names, spent in chosen_tests(mutant, reached_by, options.seconds):
        while names:
            failed = tests.run(kind, names, mutant.n, 30 + 4 * spent)
            if failed is None:
                return "timed out", f"{kind}, {len(names)} tests"
            if failed == "":
                break
            if failed == "?":
                return "killed", f"{kind} (the program ended)"
            if tests.run(kind, [failed], 0, 60) == "":
                return "killed", f"{kind} {failed}"
            # It may fail now and then, and says nothing of the mutant.
            names = [name for name in names if name != failed]
    return "survived", "" if reached_by else "reached by no test"


def allowed():
    """The keys of mutants that change nothing."""
    lines = ALLOWED.read_text().split("\n") if ALLOWED.is_file() else []
    reasons = {}
    for line in lines:
        parts = line.split(" | ")
        if len(parts) >= 4 and not line.startswith("#"):
            reasons[" | ".join(parts[:-1])] = parts[-1]
    return reasons


def described(mutant):
    return f"{mutant.file}:{mutant.line}: {mutant.change}: {mutant.text}"


def table(results, folders):
    columns = ["killed", "timed out", "survived", "changes nothing"]
    print(f"\n| folder | mutants | {' | '.join(columns)} |\n|---|---:{'|---:' * len(columns)}|")
    for folder in [*folders, "all"]:
        counts = collections.Counter(one["outcome"] for one in results.values() if folder in (one["folder"], "all"))
        print(f"| {folder} | {sum(counts.values())} | {' | '.join(str(counts[one]) for one in columns)} |")


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--sample", type=int, default=600, help="so many mutants; 0 is all (600)")
    parser.add_argument("--seed", type=int, default=1, help="chooses the sample (1)")
    parser.add_argument("--folders", default=",".join(FOLDERS), help="only these")
    parser.add_argument("--workers", type=int, default=3, help="so many mutants at a time (3)")
    parser.add_argument("--seconds", type=float, default=30,
                        help="tests of other folders, and jobs, of so many seconds for each mutant (30)")
    parser.add_argument("--stages", type=int, default=3, help="1: units of the folders, 2: all units, 3: jobs too (3)")
    parser.add_argument("--minutes", type=float, default=0, help="no new mutant is begun after so many minutes")
    parser.add_argument("--built", action="store_true", help="the programs of the last call, without building")
    parser.add_argument("--again", action="store_true", help="only those that survived the last time")
    parser.add_argument("--list", action="store_true", help="only lists the mutants")
    options = parser.parse_args()
    begin = time.monotonic()
    folders = options.folders.split(",")
    groups = all_mutants()
    print(f"{sum(map(len, groups))} mutants in all", flush=True)
    asked = lambda groups: [group for group in groups if group[0].folder in folders]
    if options.list:
        groups = sample(asked(groups), options.sample, options.seed)
        for group in groups:
            for mutant in group:
                print(described(mutant))
        return
    built, programs = last_build(groups) if options.built else build(groups)
    groups = sample(asked(built), options.sample, options.seed)
    tests = Tests(programs)
    saved = WORK / "results.json"
    results = json.loads(saved.read_text()) if options.again and saved.is_file() else {}
    reasons = allowed()
    mutants = [mutant for group in groups for mutant in group]
    results = {mutant.key: results[mutant.key] for mutant in mutants if mutant.key in results}
    # So that each folder has its share when the time is up.
    todo = sorted(mutants, key=lambda one: hashlib.sha256(one.key.encode()).hexdigest())
    for stage in range(options.stages):
        todo = [one for one in todo if results.get(one.key, {}).get("outcome", "survived") == "survived"]
        by_key = recorded(tests, built, folders, stage, options.workers)
        print(f"{time.strftime('%X')} {len(todo)} mutants meet {STAGES[stage]}", flush=True)

        def attempt(mutant):
            if options.minutes and time.monotonic() - begin > 60 * options.minutes:
                return None
            if mutant.key in reasons:
                return "changes nothing", reasons[mutant.key]
            return outcome_of(mutant, tests, by_key[mutant.key], options)

        with concurrent.futures.ThreadPoolExecutor(options.workers) as pool:
            for done, (mutant, outcome) in enumerate(zip(todo, pool.map(attempt, todo)), 1):
                if outcome is None:
                    continue
                results[mutant.key] = {"folder": mutant.folder, "outcome": outcome[0], "by": outcome[1]}
                saved.write_text(json.dumps(results, indent=1))
                if outcome[0] == "survived":
                    note = f" ({outcome[1]})" if outcome[1] else ""
                    print(f"survived{note}: {described(mutant)}", flush=True)
                if done % 50 == 0:
                    print(f"{time.strftime('%X')} {done} of {len(todo)}", flush=True)
    table(results, [folder for folder in FOLDERS if folder in folders])
    survivors = [mutant for mutant in mutants if results.get(mutant.key, {}).get("outcome") == "survived"]
    print(f"\n{len(survivors)} survivors" + (":" if survivors else ""))
    for mutant in survivors:
        print(described(mutant))


if __name__ == "__main__":
    main()
