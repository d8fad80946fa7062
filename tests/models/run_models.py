#!/usr/bin/env python3
# SPDX-FileCopyrightText: The ringbell authors
# SPDX-License-Identifier: Apache-2.0
"""Has Spin search the models here: what the source does must hold in every state, and every mutant must be found.

A model holds when the search was complete: no error, no depth, memory or time limit met. A mutant (M_*) must end in the
error named beside it. Ends non-zero on any surprise; exit 77 where spin is not installed.
usage: run_models.py [--only REGEX] [--jobs N] [--list]
"""
import argparse
import concurrent.futures
import os
import pathlib
import re
import resource
import shutil
import subprocess
import sys
import tempfile
import time

HERE = pathlib.Path(__file__).resolve().parent
SECONDS = 60  # for one step of one case; the longest search takes some three
MEGABYTES = 1000
DEPTH = 250000

HOLDS = "holds"
STUCK = "invalid end state"  # something is owed to somebody and nobody can move
BROKEN = "assertion violated"

TWO_THREADS = "BURSTS COMMANDS=3 OTHER_SUBMITS"
ABORTED = "BURSTS LEASES=1 WAITS_LOOK ABORTS"
AFTER = "BURSTS SERVES AFTER=0"
STAYING = "COMMANDS=1 BURSTS LEASES=1 WAITS_LOOK STAYS"
AWAY = "COMMANDS=1 NO_CALLS ABORTS STAYS"
KEPT_WITH_CALL = "COMMANDS=1 NO_WAITS ABORTS STAYS UNTIL_TOLD SERVES"

CASES = [
    # model, what, defines, outcome
    ("park", "submit looks once, nobody again", "BURSTS COMMANDS=3", HOLDS),
    ("park", "two threads submit", TWO_THREADS, HOLDS),
    ("park", "one doorbell, leases, service, stop", "BURSTS BATCH LEASES=2 SERVES EXITS", HOLDS),
    ("park", "leases, two threads wait", "BURSTS LEASES=2 WAITS_LOOK OTHER_WAITS", HOLDS),
    ("park", "first call after a stream, service", AFTER, HOLDS),
    ("park", "second call after a stream, wait", "BURSTS SERVES AFTER=1 WAITS_LOOK", HOLDS),
    ("park", "abort, leases, wait", ABORTED, HOLDS),
    ("park", "abort, leases, wait, service", ABORTED + " SERVES COMMANDS=1", HOLDS),
    ("park", "kept away, leases, wait", "BURSTS LEASES=1 WAITS_LOOK STAYS", HOLDS),
    ("park", "kept away, leases, service", "COMMANDS=1 BURSTS LEASES=1 STAYS SERVES", HOLDS),
    ("park", "kept away, abort", "COMMANDS=1 BURSTS WAITS_LOOK ABORTS STAYS", HOLDS),
    ("park", "abort, leases: peers learn of it", ABORTED + " COMMANDS=1 TOLD SERVES", HOLDS),
    ("park", "abort, kept away: peers learn of it", AWAY + " TOLD SERVES", HOLDS),
    ("park", "abort, kept away until peers know", AWAY + " UNTIL_TOLD SERVES", HOLDS),
    ("park", "abort, kept away with a call", KEPT_WITH_CALL, HOLDS),
    ("park", "abort, service, stop", ABORTED + " COMMANDS=1 SERVES EXITS", HOLDS),

    ("park", "no second look at the queue", "BURSTS M_NO_REREAD", STUCK),
    ("park", "no fence in the worker's park", "BURSTS M_NO_WORKER_FENCE", STUCK),
    ("park", "no fence after submit's stores", "BURSTS M_NO_HOST_FENCE", STUCK),
    ("park", "no PARKING", "BURSTS M_NO_PARKING", STUCK),
    ("park", "PARKING taken for RUNNING", "BURSTS M_PARKING_IS_RUNNING", STUCK),
    ("park", "PARKED before what is saved", "BURSTS M_PARKED_BEFORE_SAVED", BROKEN),
    ("park", "PARKED relaxed", "BURSTS M_PARKED_RELAXED", BROKEN),
    ("park", "launch without compare-exchange", TWO_THREADS + " M_LAUNCH_WITHOUT_CAS", BROKEN),
    ("park", "compare, then store", TWO_THREADS + " M_COMPARE_THEN_STORE", BROKEN),
    ("park", "poll asks one quad", AFTER + " M_POLL_ONE_QUAD", BROKEN),
    ("park", "park asks one quad", AFTER + " M_PARK_ASKS_ONE_QUAD", BROKEN),
    ("park", "nobody looks after a stream", "BURSTS AFTER=0", STUCK),
    ("park", "nobody looks after a lease", "BURSTS LEASES=1", STUCK),
    ("park", "no fence after RUNNING", ABORTED + " M_NO_START_FENCE", BROKEN),
    ("park", "no look at the abort word at the start", ABORTED + " M_NO_START_LOOK", BROKEN),
    ("park", "nobody looks after an abort", ABORTED + " TOLD SERVES M_NO_RELAY", STUCK),
    ("park", "nobody looks after an abort, kept away", AWAY + " TOLD SERVES M_NO_RELAY", STUCK),
    ("park", "scopes keep the relay away", AWAY + " UNTIL_TOLD SERVES M_RELAY_ASKS_STAYS", STUCK),
    ("park", "no look at the abort word, kept away", KEPT_WITH_CALL + " M_NO_START_LOOK", BROKEN),
    ("park", "given up before the abort word is there", ABORTED + " M_GONE_WITHOUT_ABORT", BROKEN),
    ("park", "given up without a last look", ABORTED + " M_GONE_WITHOUT_SETTLE", BROKEN),
    ("park", "launch does not look at stays", STAYING + " M_LAUNCH_IGNORES_STAYS", BROKEN),
    ("park", "any generation's PARKED will do", STAYING + " M_AWAIT_ANY_GENERATION", BROKEN),
    ("park", "unpark does not look", "BURSTS STAYS M_UNPARK_WITHOUT_LOOK", STUCK),
    ("park", "right given back, nobody serves", "BURSTS STAYS", STUCK),

    ("slots", "direct, two sets", "EPOCHS=5", HOLDS),
    ("slots", "one chunk ahead, four sets", "AHEAD=1 SETS=4 EPOCHS=5 LATE_READS", HOLDS),
    ("slots", "headers: lines of two words by parity", "WORDS=2 EPOCHS=5 LATE_READS", HOLDS),
    ("slots", "two-shot", "TWO_SHOT EPOCHS=4 LATE_READS", HOLDS),
    ("slots", "two-shot, RS(c+1) early", "TWO_SHOT EARLY EPOCHS=4 LATE_READS", HOLDS),
    ("slots", "one set", "SETS=1", BROKEN),
    ("slots", "e+1 sent before all of e are received", "M_SEND_BEFORE_ALL", BROKEN),
    ("slots", "one chunk ahead, three sets", "AHEAD=1 SETS=3 LATE_READS", BROKEN),
    ("slots", "two chunks ahead, five sets", "AHEAD=2 SETS=5 EPOCHS=7 LATE_READS", BROKEN),
    ("slots", "no barrier between lanes", "WORDS=2 LATE_READS M_NO_BARRIER", BROKEN),
    ("slots", "one peer's header is not read", "WORDS=2 M_ONE_PEER_UNREAD", BROKEN),
    ("slots", "two-shot, one set", "TWO_SHOT EARLY SETS=1 LATE_READS", BROKEN),
    ("slots", "RS(c+2) sent before AG(c) is read", "TWO_SHOT EARLY LATE_READS M_RS_BEFORE_AG_READ", BROKEN),

    ("lanes", "one round an operation, no other barrier", "ONE_ROUND", HOLDS),
    ("lanes", "many rounds, the last one full", "NO_SHORT", HOLDS),
    ("lanes", "short last round, lanes meet before it", "FIX_MEET_BEFORE_SHORT", HOLDS),
    ("lanes", "short last round, lanes do not meet", "", BROKEN),

    ("wraps", "flags wrap, formats change", "", HOLDS),
    ("wraps", "no zeroing near the wrap", "M_NO_CLEANING", BROKEN),
    ("wraps", "no fence after zeroing", "M_NO_FENCE_AFTER_CLEANING", BROKEN),
    ("wraps", "no zeroing after another format's message", "M_CLEANED_BY_LL_ALONE", BROKEN),
    ("wraps", "an epoch in which no line is sent", "M_EPOCH_WITHOUT_LINE", BROKEN),

    ("credits", "LL, flags wrap", "", HOLDS),
    ("credits", "Simple", "SIMPLE", HOLDS),
    ("credits", "credit before the read", "M_CREDIT_BEFORE_READ", BROKEN),
    ("credits", "one slot more than there are", "M_ONE_SLOT_MORE", BROKEN),
    ("credits", "room compared without sign", "M_UNSIGNED_ROOM", STUCK),
    ("credits", "no zeroing near the wrap", "M_NO_CLEANING", BROKEN),
    ("credits", "zeroed slot freed by a relaxed store", "M_CLEAN_CREDIT_RELAXED", BROKEN),
    ("credits", "Simple, credit before the read", "SIMPLE M_CREDIT_BEFORE_READ", BROKEN),
    ("credits", "Simple, tail relaxed", "SIMPLE M_TAIL_RELAXED", BROKEN),
]

LIMITS = re.compile(r"max search depth too small|out of memory|memory limit|Search not completed|truncated|"
                    r"hash array|reached -DMEMLIM", re.IGNORECASE)
STEP = re.compile(r"\s*\d+:\s+proc ")


def judge(text, expected):
    """@return '' if the verifier's output says what is expected, else what is wrong"""
    errors = re.search(r"errors: (\d+)", text)
    if not errors:
        return "no result"
    found = re.search(r"^pan:\d+: (.*)", text, re.MULTILINE)
    said = found.group(1) if found else "no error"
    if expected == HOLDS:
        if errors.group(1) != "0" or found:
            return said
        limit = LIMITS.search(text)
        return f"not complete: {limit.group(0)}" if limit else ""
    if errors.group(1) == "0" or not found:
        return "was not found"
    return "" if expected in said else f"found otherwise: {said}"


def check_judge():
    good = "State-vector 28 byte, depth reached 9, errors: 0\n   12 states, stored\n"
    bad = "pan:1: assertion violated !(runs) (at depth 3)\nWarning: Search not completed\nerrors: 1\n"
    assert judge(good, HOLDS) == "" and judge(bad, BROKEN) == ""
    assert judge(good, BROKEN) and judge(bad, HOLDS) and judge(bad, STUCK) and judge("", HOLDS) and judge("", BROKEN)
    assert judge("error: max search depth too small\n" + good, HOLDS)
    assert judge("Warning: Search not completed\n" + good, HOLDS)
    assert judge("pan: reached -DMEMLIM bound\n" + good, HOLDS)


def unknown_defines():
    """A define that the model does not ask for would change nothing, and a case would hold for no reason."""
    for model, what, defines, _ in CASES:
        asked = set(re.findall(r"\b[A-Z][A-Z0-9_]*\b", re.sub(r"//.*", "", (HERE / f"{model}.pml").read_text())))
        for define in defines.split():
            if define.split("=")[0] not in asked:
                yield f"{model}, {what}: {define} is not in the model"


def limit_memory():
    resource.setrlimit(resource.RLIMIT_AS, ((MEGABYTES + 200) << 20,) * 2)


def run(case):
    """@return (states, seconds of the search, what is wrong, what helps to see why)"""
    model, _, defines, expected = case
    flags = [f"-D{define}" for define in defines.split()]
    with tempfile.TemporaryDirectory(prefix="ringbell-model-") as folder:
        def call(*command, **options):
            return subprocess.run(command, cwd=folder, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
                                  errors="replace", timeout=SECONDS, check=False, **options)
        shutil.copy(HERE / f"{model}.pml", folder)
        made = call("spin", "-a", *flags, f"{model}.pml")
        if made.returncode == 0:
            # Unoptimised: the compiler would take longer than it spares the search.
            bounds = [] if expected == HOLDS else ["-DNOBOUNDCHECK"]
            made = call("gcc", "-O0", "-w", "-DSAFETY", "-DNOFAIR", *bounds, f"-DMEMLIM={MEGABYTES}", "-o", "pan",
                        "pan.c")
        if made.returncode != 0:
            return 0, 0.0, "does not compile", made.stdout
        start = time.monotonic()
        try:
            text = call("./pan", f"-m{DEPTH}", "-w20", preexec_fn=limit_memory).stdout
        except subprocess.TimeoutExpired:
            return 0, float(SECONDS), "not complete: out of time", ""
        seconds = time.monotonic() - start
        states = re.search(r"(\d+) states, stored", text)
        wrong = judge(text, expected)
        if wrong and list(pathlib.Path(folder).glob("*.trail")):
            steps = call("spin", *flags, "-t", "-p", f"{model}.pml").stdout
            text += "".join(f"{line}\n" for line in steps.splitlines() if STEP.match(line) and "(memory:" not in line)
        return int(states.group(1)) if states else 0, seconds, wrong, text


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--only", default="", help="cases whose model, name or defines match this expression")
    parser.add_argument("--jobs", type=int, default=min(2, os.cpu_count() or 1))
    parser.add_argument("--list", action="store_true", help="print the commands instead of running them")
    options = parser.parse_args()
    check_judge()
    unknown = list(unknown_defines())
    if unknown:
        print("\n".join(unknown))
        return 1
    cases = [case for case in CASES if re.search(options.only, " ".join(str(part) for part in case[:3]))]
    if options.list:
        for model, what, defines, expected in cases:
            flags = " ".join(f"-D{define}" for define in defines.split())
            print(f"spin -a {flags} {model}.pml  # {what}: {expected}")
        return 0
    for program in ("spin", "gcc"):
        if shutil.which(program) is None:
            print(f"skipped: {program} is not installed (apt-get install {program})")
            return 77
    os.nice(10)
    surprises = []
    print(f"{'model':8} {'what':42} {'must':24} {'states':>9} {'s':>6}")
    with concurrent.futures.ThreadPoolExecutor(options.jobs) as pool:
        for case, (states, seconds, wrong, detail) in zip(cases, pool.map(run, cases)):
            model, what, _, expected = case
            print(f"{model:8} {what:42} {expected:24} {states:9} {seconds:6.1f}  {wrong}", flush=True)
            if wrong:
                surprises.append((model, what, wrong, detail))
    for model, what, wrong, detail in surprises:
        print(f"\n{model}, {what}: {wrong}\n" + "\n".join(detail.splitlines()[-80:]))
    mutants = sum(case[3] != HOLDS for case in cases)
    print(f"{len(cases) - mutants} searches that must hold, {mutants} that must fail, {len(surprises)} surprises")
    return 1 if surprises or not cases else 0


if __name__ == "__main__":
    sys.exit(main())
