# SPDX-FileCopyrightText: The ringbell authors
# SPDX-License-Identifier: Apache-2.0
"""What tools/plot shows: result files read, their rows sorted into series, and the words that say what was measured.

A series is what becomes one line of a picture or one column of a table: rows that differ in size alone. Nothing is filled
in: a size that a series was not measured at stays blank. How a series looks is plot_svg.py and plot itself.
"""
import dataclasses
import json
import math

ALGORITHMS = ["auto", "ring", "oneshot", "twoshot"]
PROTOCOLS = ["auto", "LL", "LL16", "LL128", "Simple"]
PEERS = {  # in the order of columns
    "ringbell": "ringbell", "nccl": "NCCL", "nccl-sym": "NCCL symmetric windows", "nccl-ring-ll": "NCCL Ring LL",
    "nccl-ring-ll128": "NCCL Ring LL128", "nccl-ring-simple": "NCCL Ring Simple", "nccl-tree-ll": "NCCL Tree LL",
    "nccl-tree-ll128": "NCCL Tree LL128", "nccl-tree-simple": "NCCL Tree Simple", "nccl-nop2p": "NCCL without P2P",
    "launch": "kernel launched per call", "mpi": "MPI", "torch-one-shot": "PyTorch one-shot",
    "torch-two-shot": "PyTorch two-shot"}
ISSUES = {  # in the order of columns: what a label says, what a caption says
    "host": ("host", "host: call and wait"),
    "after": ("after a stream", "host: call on data of a stream, and wait"),
    "stream": ("stream", "back to back on a stream, per call"),
    "graph": ("graph", "added per call in a CUDA graph"),
    "chain": ("chain", "producer kernel, AllReduce, consumer kernel: per chain"),
    "chain-host": ("chain, host waits for the producer", "producer kernel, host queue, consumer kernel: per chain"),
    "chain-after": ("chain, host call after the producer", "producer kernel, host queue after it, consumer kernel: per chain"),
    "chain-stream": ("chain on a stream", "producer kernel, AllReduce, consumer kernel on a stream: per chain"),
    "chain-graph": ("chain in a graph", "producer kernel, AllReduce, consumer kernel in a CUDA graph: per chain")}


def issue_of(row):
    """A chain is named with the way that its calls go."""
    return f"{row['issue']}-{row['chain']}" if "chain" in row else row["issue"]


class Failure(Exception):
    """Something that makes a table or a picture impossible; the text names the file."""


@dataclasses.dataclass(frozen=True)
class Key:
    """What the rows of one series have in common. None: not said, or chosen anew for every size."""
    peer: str
    algo: str
    proto: str
    channels: object
    issue: str
    ranks: int
    device: str
    in_place: bool
    dtype: str
    op: str
    l2: object
    nvls: object
    version: object


@dataclasses.dataclass
class Series:
    key: Key
    label: str = ""
    rows: dict = dataclasses.field(default_factory=dict)  # bytes: row


def _refuse_constant(name):
    raise ValueError(f"{name} is no number")


def load(path, name):
    """One result file. `name` is how messages call it."""
    try:
        document = json.loads(path.read_text(encoding="utf-8"), parse_constant=_refuse_constant)
    except (OSError, ValueError) as error:
        raise Failure(f"{name}: cannot be read: {getattr(error, 'strerror', None) or error}") from None
    if not isinstance(document, dict) or not isinstance(document.get("rows"), list) or not isinstance(document.get("machine"), dict):
        raise Failure(f"{name}: not a result file of perf: no rows or no machine")
    if not document["rows"]:
        raise Failure(f"{name}: no rows")
    for index, row in enumerate(document["rows"]):
        value = row.get("p50_us") if isinstance(row, dict) else None
        if not isinstance(value, (int, float)) or isinstance(value, bool) or not math.isfinite(value):
            raise Failure(f"{name}: row {index}: p50_us is no number")
    return document


def is_floor(row):
    return row["algo"] == "nop"


def _wanted(row, filters):
    if is_floor(row) and row["peer"] == "ringbell":
        return False
    return all(name == "place" or (issue_of(row) in values or row["issue"] in values if name == "issue" else str(row[name]) in values)
               for name, values in filters.items())


def _key(row, **chosen):
    ours = row["peer"] == "ringbell"
    values = {name: row[name] for name in ("peer", "ranks", "device", "in_place", "dtype", "op")}
    values["issue"] = issue_of(row)
    values.update({name: row.get(name) for name in ("l2", "nvls")}, version=row.get("peer_version"))
    # What a peer chose inside is its own business; what we chose is what a reader compares.
    values.update({name: row[name] if ours else None for name in ("algo", "proto", "channels")})
    return Key(**{**values, **chosen})


def _keyed(rows):
    """Pairs of key and row of one file. Where a run chose protocol or algorithm size by size, that is one series."""
    groups = {}
    for row in rows:
        groups.setdefault(_key(row, algo=None, proto=None, channels=None), []).append(row)
    pairs = []
    for group in groups.values():
        chosen = {}
        if group[0]["peer"] == "ringbell" and len({row["bytes"] for row in group}) == len(group):
            for name, instead in (("algo", "auto"), ("proto", "auto"), ("channels", None)):
                if len({row[name] for row in group}) > 1:
                    chosen[name] = instead
        pairs += [(_key(row, **chosen), row) for row in group]
    return pairs


def _order(key):
    def place(names, value):
        names = list(names)
        return names.index(value) if value in names else len(names)

    return (place(ISSUES, key.issue), place(PEERS, key.peer), key.peer, place(ALGORITHMS, key.algo), place(PROTOCOLS, key.proto),
            key.channels or 0, key.dtype, key.op, key.ranks, key.device, key.in_place, str(key.l2), str(key.nvls), str(key.version))


def _label_all(series):
    """A label says what tells its series from the others, and no more."""
    def varies(name, among):
        return len({getattr(one.key, name) for one in among}) > 1

    ours = [one for one in series if one.key.peer == "ringbell"]
    theirs = [one for one in series if one.key.peer != "ringbell"]
    for one in series:
        key = one.key
        words = []
        if key.peer != "ringbell":
            words.append(PEERS.get(key.peer, key.peer))
            same = [other for other in theirs if other.key.peer == key.peer]
            if varies("version", same):
                words.append(key.version or "of unknown version")
            if varies("nvls", same):
                words.append({True: "NVLS on", False: "NVLS off", None: "NVLS unknown"}[key.nvls])
        else:
            words += ["ringbell"] if theirs else []
            words += [key.algo] if varies("algo", ours) else []
            words += [key.proto] if not theirs or key.proto != "auto" or varies("proto", ours) else []
            words += [f"{key.channels} channels"] if varies("channels", ours) and key.channels else []
        details = [key.dtype] if varies("dtype", series) else []
        details += [key.op] if varies("op", series) else []
        details += [f"{key.ranks} ranks"] if varies("ranks", series) else []
        details += [key.device] if varies("device", series) else []
        details += ["in place"] if key.in_place and varies("in_place", series) else []  # the caption says the rest
        details += [ISSUES.get(key.issue, (key.issue,))[0]] if varies("issue", series) else []
        details += [f"L2 {key.l2}"] if key.l2 and varies("l2", [other for other in series if other.key.l2]) else []
        one.label = " ".join(words) + (f" ({', '.join(details)})" if details else "")


def series_of(documents, filters=None):
    """@param documents pairs of name and parsed file  @return labelled series in the order of columns"""
    filters = {"dtype": ["float32"], "op": ["sum"], "place": ["out"], **(filters or {})}
    found, seen = {}, {}
    for name, document in documents:
        rows = [row for row in document["rows"] if _wanted(row, filters)]
        if not rows:
            wanted = ", ".join(f"{key}={','.join(values)}" for key, values in filters.items() if key != "place")
            raise Failure(f"{name}: no rows with {wanted}")
        for key, row in _keyed(rows):
            if (key, row["bytes"]) in seen:
                raise Failure(f"{name} and {seen[key, row['bytes']]} both have {row['bytes']} bytes of "
                              f"{PEERS.get(key.peer, key.peer)} {key.proto or ''} {key.issue}: take one file, or filter by peer=")
            seen[key, row["bytes"]] = name
            found.setdefault(key, Series(key)).rows[row["bytes"]] = row
    # A peer that only works in place is better shown as such than not at all.
    place = filters["place"][0]
    if place != "both":
        wanted = place == "in"
        for key in list(found):
            if key.in_place != wanted and dataclasses.replace(key, in_place=wanted) in found:
                del found[key]
    series = sorted(found.values(), key=lambda one: _order(one.key))
    _label_all(series)
    return series


def size_text(size):
    for unit, suffix in ((1 << 30, "G"), (1 << 20, "M"), (1 << 10, "K")):
        if size >= unit and size % unit == 0:
            return f"{size // unit} {suffix}"
    return str(size)


def floor_of(documents):
    """Least and greatest time of an empty call, or None."""
    floors = [row["p50_us"] for _, document in documents for row in document["rows"] if is_floor(row) and row["peer"] == "ringbell"]
    return (min(floors), max(floors)) if floors else None


def machine_text(documents, series):
    """All files are of one kind of machine: times of two kinds do not belong into one table."""
    on_gpus = any(one.key.device == "cuda" for one in series)
    texts = {}
    for name, document in documents:
        gpus = document["machine"].get("gpus") or []
        text = document["machine"].get("cpu") or "unknown machine"
        if on_gpus and gpus:
            text = ", ".join(f"{gpus.count(gpu)} x {gpu}" for gpu in sorted(set(gpus)))
        texts.setdefault(text, name)
    if len(texts) > 1:
        raise Failure("different machines: " + "; ".join(f"{name} is of {text}" for text, name in texts.items()))
    return next(iter(texts))


def _plural(count, word):
    return f"{count} {word}" + ("" if count == 1 else "s")


def what_text(documents, series):
    """What all series have in common."""
    def common(name, among=None):
        values = {getattr(one.key, name) for one in among or series}
        return values.pop() if len(values) == 1 else None

    ours = [one for one in series if one.key.peer == "ringbell"]
    ranks, device, in_place, issue = (common(name) for name in ("ranks", "device", "in_place", "issue"))
    where = [_plural(ranks, "rank")] if ranks else []
    where += [device] if device else []
    parts = [", ".join([*where, machine_text(documents, series)])]
    data = " ".join(word for word in (common("dtype"), common("op")) if word)
    path = [word for word in (common("algo", ours), ) if word and ours]
    if ours and common("channels", ours):
        path.append(_plural(common("channels", ours), "channel"))
    data = [data] if data else []
    place = ["out of place unless said" if in_place is None else "in place" if in_place else "out of place"]
    l2 = common("l2")
    parts.append(", ".join([*data, *path, *place, *([f"L2 {l2}"] if l2 else [])]))
    if issue:
        parts.append(ISSUES.get(issue, (issue, issue))[1])
    return "; ".join(part for part in parts if part)


def version_text(documents, series):
    """Which builds and which peers, with what a reader must know of them."""
    parts = []
    ours = sorted({(document["version"], document["commit"][:7]) for _, document in documents
                   if any(row["peer"] == "ringbell" for row in document["rows"])})
    if any(one.key.peer == "ringbell" for one in series) and ours:
        versions = sorted({version for version, _ in ours})
        parts.append("ringbell " + ", ".join(f"{version} ({', '.join(commit for other, commit in ours if other == version)})"
                                             for version in versions))
    peers = {}
    for one in series:
        key = one.key
        if key.peer == "ringbell":
            continue
        family = "NCCL" if key.peer.startswith("nccl") else "PyTorch" if key.peer.startswith("torch") else PEERS.get(key.peer, key.peer)
        if key.peer == "launch":
            continue  # comes from our own build
        version = key.version or "of unknown version"
        text = version if family in version else f"{family} {version}"
        if family == "NCCL":
            peers.setdefault(text, set()).add({True: "NVLS on", False: "NVLS off", None: "NVLS unknown"}[key.nvls])
        else:
            peers.setdefault(text, set())
    parts += [text + (f" ({', '.join(sorted(notes))})" if notes else "") for text, notes in peers.items()]
    if any(one.key.device == "cuda" for one in series):
        for name, title in (("cuda_runtime", "CUDA"), ("driver", "driver")):
            values = sorted({document["machine"][name] for _, document in documents if document["machine"].get(name)})
            parts += [f"{title} {', '.join(values)}"] if values else []
    return ", ".join(parts)


def time_range(low, high):
    low, high = f"{low:.1f}", f"{high:.1f}"
    return low if low == high else f"{low} to {high}"
