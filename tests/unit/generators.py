# ruff: noqa: E501 (kernels, one statement per line)
"""Random TIR as a person could have written it: rings, guards, nested loops, roles, usually with something bent.

Each function gives the text that belongs to a seed. Some programs are right, most kinds about half of them.
"""

from __future__ import annotations

import random

HEAD = """kernel random target sm_80 warps 2 smem 768
dim N
dim M
param a f32 [64, 64] in align 16
param b f32 [64, 64] out align 16
layout row [2, 32] reg - lane 0,1 0,2 0,4 0,8 0,16 warp 1,0 rep 1,1
layout col [2, 32] reg - lane 1,0 0,2 0,4 0,8 0,16 warp 0,1 rep 1,1
layout one [2, 32] reg 1,0 lane 0,1 0,2 0,4 0,8 0,16 warp 0,0 rep 1,1
"""
TAIL = """register x f32 layout row
register y f32 layout col
register z f32 layout one
body {
fill x <- 0.0
fill y <- 0.0
fill z <- 0.0
"""
LAYOUTS = {"x": "row", "y": "col", "z": "one"}


def program(seed: int) -> str:
    """Random, but with a leaning towards correct: mostly whole patterns of copy, wait, sync, read."""
    rng = random.Random(seed)
    stages = rng.choice([1, 2, 2, 3])
    other = rng.choice([stages * 256 % 768, 0, 256]) if stages < 3 else rng.choice([0, 512])
    slot = "p[{}]" if stages > 1 else "p"
    text = (
        HEAD
        + f"buffer p f32 [2, 32] stages {stages} at 0 stride 256\nbuffer q f32 [2, 32] stages 1 at {other} stride 256\n"
    )
    text += f"cursor u depth {stages}\ncursor v depth {stages}\n" if stages > 1 else ""
    text += TAIL

    def sync() -> str:
        return rng.choice(["sync_block", "sync_block", "sync_warp", "bar_sync 1 warps 0,1", "bar_sync 2 warps 0"])

    grid = rng.random() < 0.3
    text = text.replace("layout row", "grid g < M\nlayout row", 1) if grid else text

    def condition(index: str) -> str:
        if index and rng.random() < 0.7:
            return rng.choice(["{} < 1", "0 < {}", "{} % 2 == 0", "{} % 3 == 2", "{} + 1 < N", "{} != 1"]).format(index)
        if grid and rng.random() < 0.7:
            return rng.choice(["g == 0", "g + 1 < M", "g + 1 == M", "0 < g && g < 2", "g % 2 == 1"])
        return f"{rng.choice('012')} < {rng.choice('NM')}"

    def piece(depth: int, index: str = "") -> list[str]:
        register = rng.choice("xyz")
        place = slot.format(rng.choice("uv"))
        copied = rng.choice([place, place, "q"])
        match rng.randrange(12):
            case 0 | 1:
                body = [f"cp_async {copied} <- a[0, 0] layout {LAYOUTS[register]} bytes 4"]
                return body + (["advance u"] if stages > 1 and rng.random() < 0.6 else [])
            case 2:
                return [
                    f"cp_async {copied} <- a[0, 0] layout {LAYOUTS[register]} bytes 4",
                    "cp_commit",
                    "cp_wait 0",
                    sync(),
                ]
            case 3:
                return ["cp_commit"]
            case 4:
                return [f"cp_wait {rng.randrange(3)}"] + ([sync()] if rng.random() < 0.8 else [])
            case 5:
                return [sync(), f"ld_shared {register} <- {copied} bytes 4"]
            case 6:
                return [f"ld_shared {register} <- {copied} bytes 4"] + (["advance v"] if stages > 1 else [])
            case 7:
                return [f"st_shared {copied} <- {register} bytes 4", sync()]
            case 8:
                return [sync()]
            case 9 if depth < 2:
                count = rng.choice(["N", "N", "M", "3", "min(N, 2)", "N + 1"])
                name = f"i{depth}{rng.randrange(10**6)}"
                inner = [s for _ in range(rng.randrange(2, 6)) for s in piece(depth + 1, name)]
                return [f"for {name} = 0 .. {count} {{", *inner, "}"]
            case 10:
                inner = [s for _ in range(rng.randrange(1, 3)) for s in piece(2)]
                return [f"if {condition(index)} {{", *inner, "}"]
        return ["cp_commit", "cp_wait 0", "sync_block"]

    lines = [
        "cp_async p <- a[0, 0] layout row bytes 4".replace("p ", slot.format("u") + " "),
        "cp_commit",
        "cp_wait 0",
        "sync_block",
    ]
    lines += [s for _ in range(rng.randrange(1, 7)) for s in piece(0)]
    lines += ["cp_commit", "cp_wait 0"] if rng.random() < 0.8 else []
    return text + "\n".join(lines) + "\n}\n"


def ring(seed: int) -> str:
    """A ring with prologue and guard, every number drawn near the right one."""
    rng = random.Random(seed)
    stages = rng.choice([2, 3])
    ahead = stages - 1 if rng.random() < 0.8 else rng.randrange(0, stages + 1)
    read = rng.choice("xyz")
    write = read if rng.random() < 0.3 else rng.choice("xyz")
    copy = f"cp_async p[u] <- a[0, 0] layout {LAYOUTS[write]} bytes 4\nadvance u\n"
    text = (
        HEAD
        + f"buffer p f32 [2, 32] stages {stages} at 0 stride 256\ncursor u depth {stages}\ncursor v depth {stages}\n"
        + TAIL
    )
    for i in range(ahead):
        text += f"if {i} < N {{\n{copy}}}\n" + ("cp_commit\n" if rng.random() < 0.95 else "")
    wait = max(ahead - rng.choice([1, 1, 1, 0, 2]), 0)
    sync = rng.choice(["sync_block\n", "sync_block\n", "sync_block\n", "sync_warp\n", "bar_sync 1 warps 0\n", ""])
    again = rng.choice(["", "", "sync_block\n", "sync_warp\n"])
    guarded = f"if k + {ahead if rng.random() < 0.85 else ahead + 1} < N {{\n{copy}}}\ncp_commit\n"
    use = f"ld_shared {read} <- p[v] bytes 4\nadvance v\n"
    order = [guarded, use] if rng.random() < 0.7 else [use, guarded]
    inner = f"for k = 0 .. N {{\ncp_wait {wait}\n{sync}{order[0]}{again}{order[1]}}}\n"
    if rng.random() < 0.2:
        last = rng.choice(["", "cp_wait 0\n", "sync_block\n"])
        inner = f"for t = 0 .. M {{\n{inner}{last}}}\n"
    return text + inner + rng.choice(["", "", "cp_wait 0\n"]) + "}\n"


# ------------------------------------------------------------------------------------- roles

ROLES_HEAD = """kernel random target sm_90a warps 4 smem 1024
dim N
param a f32 [2, 4096] in align 16
param o f32 [64, 32] out align 16
layout v [1, 32] reg - lane 0,1 0,2 0,4 0,8 0,16 warp - rep 1,1
layout u [2, 32] reg - lane 0,1 0,2 0,4 0,8 0,16 warp 1,0 rep 1,1
"""


def role_ring(seed: int) -> str:
    """A ring between one producer and two consumers of one or two warps, usually with something changed."""
    rng = random.Random(seed)
    s = rng.choice([1, 2, 2, 3])
    tma = rng.random() < 0.6
    wide = rng.random() < 0.5  # one consumer of two warps, or two of one
    per = rng.choice(["thread", "warp", "role"])
    rows, tile, size = (2, "u", 256) if wide else (1, "v", 128)
    arrivals = {"thread": 64, "warp": 2, "role": 1 if wide else 2}[per]
    full = 1 if tma else 32
    meet = "bar_sync 1 warps 0,1" if wide else "sync_warp"
    copy = (
        f"expect full[w] bytes {size}\ntma_load t[w] <- a[0, 0] bar full[w]"
        if tma
        else "cp_async t[w] <- a[0, 0] layout PV bytes 4\ncp_arrive full[w]"
    )
    if not tma and wide:
        copy = copy.replace("cp_async t[w] <- a[0, 0] layout PV", "cp_async t[w] <- a[0, 0] layout p")
    copy = copy.replace("PV", "v")
    producer = f"for n = 0 .. N {{\nwait empty[w] flip 1\n{copy}\nadvance w\n}}"
    fence = "fence_async shared\n" if tma else ""
    use = f"for n = 0 .. N {{\nwait full[C] flip 0\nld_shared X <- t[C] bytes 4\n{fence}{meet if per != 'thread' else ''}\narrive empty[C] by {per}\nadvance C\n}}"
    if wide and per == "warp":
        use = use.replace(meet, "sync_warp")
    lines = [ROLES_HEAD + ("layout p [2, 32] reg 1,0 lane 0,1 0,2 0,4 0,8 0,16 warp - rep 1,1\n" if wide else "")]
    lines += [f"buffer t f32 [{rows}, 32] stages {s} at 0 stride {size}", "CURSORS"]
    change = rng.choice(["", "", "count", "full", "flip", "stages", "drop", "drop", "drop", "dup", "move"])
    arrivals += rng.choice([-1, 1]) * (change == "count") if arrivals > 1 else (change == "count")
    full += change == "full"
    lines += [f"mbarrier full stages {s} count {full} at 896", f"mbarrier empty stages {s} count {arrivals} at 928"]
    names = ["r"] if wide else ["r", "q"]
    lines += [f"register x{c} f32 layout {tile}" for c in names]
    lines += ["role one warps 0 count 2"] if wide else ["role one warps 0 count 1", "role two warps 1 count 1"]
    lines += [
        "role producer warps 2 count 1",
        "body {",
        "barrier_init full",
        "barrier_init empty",
        "fence_barrier_init",
        "sync_block",
    ]
    blocks = [("producer", producer)] + [
        (role, use.replace("[C]", f"[{c}]").replace("advance C", f"advance {c}").replace("X", f"x{c}"))
        for role, c in zip(["one", "two"], names, strict=False)
    ]
    if change == "flip":
        producer = producer.replace("flip 1", "flip 0")
        blocks[0] = ("producer", producer)
    if change in ("drop", "dup", "move"):
        at = rng.randrange(len(blocks))
        body = [x for x in blocks[at][1].split("\n") if x]
        where = rng.randrange(1, len(body) - 1)
        line = body.pop(where)
        if change == "dup":
            body[where:where] = [line, line]
        elif change == "move":
            body.insert(rng.randrange(1, len(body)), line)
        blocks[at] = (blocks[at][0], "\n".join(body))
    text = "\n".join(lines)
    for role, body in blocks:
        text += f"\nin {role} {{\n{body}\n}}"
    cursors = "\n".join(f"cursor {c} depth {s}" for c in ["w", *names])
    if s == 1:
        text = "\n".join(x.replace("t[w]", "t").replace("t[r]", "t").replace("t[q]", "t") for x in text.split("\n"))
    return text.replace("CURSORS", cursors) + "\n}\n"


def role_nested(seed: int) -> str:
    """The ring once per tile, the cursors counting on, or (a fault) not everywhere."""
    rng = random.Random(seed)
    text = role_ring(seed + 10_000).replace("dim N\n", "dim N\ndim M\n")
    blocks = text.split("\nin ")
    for at in range(1, len(blocks)):
        head, rest = blocks[at].split("{\n", 1)
        end = rest.rindex("}\n}" if at == len(blocks) - 1 else "}")
        blocks[at] = f"{head}{{\nfor m = 0 .. M {{\n{rest[:end]}}}\n{rest[end:]}"
    if rng.random() < 0.3:
        at = rng.randrange(1, len(blocks))
        cursor = (
            next(x.split()[1] for x in blocks[at].split("\n") if x.startswith("advance"))
            if "advance" in blocks[at]
            else None
        )
        if cursor:
            blocks[at] = blocks[at].replace("for m = 0 .. M {", f"for m = 0 .. M {{\nadvance {cursor}", 1)
    return "\nin ".join(blocks)


def role_staged(seed: int) -> str:
    """Two warps write a tile, a tensor copy stores it; two others take turns with them through named barriers."""
    rng = random.Random(seed)
    one = [
        "st_shared t <- x bytes 4",
        "fence_async shared",
        "bar_sync 1 warps 0,1",
        "tma_store o[n * 2, 0] <- t",
        "bulk_commit",
    ]
    one += ["bulk_wait 0 read", "bar_sync 1 warps 0,1"]
    both = rng.random() < 0.6
    two = ["bar_sync 3 warps 2,3", "ld_shared y <- t bytes 4", "bar_arrive 4 warps 2,3 count 128"]
    if both:
        one += ["bar_arrive 3 warps 0,1 count 128", "bar_sync 4 warps 0,1"]
    change = rng.choice(["", "drop", "drop", "dup", "swap", "move"])
    body = one if not both or rng.random() < 0.7 else two
    at = rng.randrange(len(body))
    if change == "drop":
        del body[at]
    elif change == "dup":
        body.insert(at, body[at])
    elif change == "swap" and at:
        body[at - 1], body[at] = body[at], body[at - 1]
    elif change == "move":
        body.insert(rng.randrange(len(body)), body.pop(at))
    lines = [
        ROLES_HEAD.replace("o f32 [64, 32]", "o f32 [2 * N, 32]") + "buffer t f32 [2, 32] stages 1 at 0 stride 256",
        "register x f32 layout u",
        "register y f32 layout u",
    ]
    lines += [
        "role one warps 0 count 2",
        "role two warps 2 count 2",
        "body {",
        "in one {",
        "fill x <- 1.0",
        "for n = 0 .. N {",
        *one,
        "}",
        "}",
    ]
    if both:
        lines += ["in two {", "for n = 0 .. N {", *two, "}", "}"]
    return "\n".join([*lines, "}", ""])


GENERATORS = {
    "straight": program,
    "ring": ring,
    "role ring": role_ring,
    "role ring per tile": role_nested,
    "staged store": role_staged,
}
"""All of them by what they make."""
