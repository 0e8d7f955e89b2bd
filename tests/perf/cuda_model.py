#!/usr/bin/env python3
"""What the CUDA kernels should reach on an H200, from counts of their instructions: one page of formulas, no device.

  cuda_model.py [BUDGETS…]    a row a case, a column a table of tests/cuda_budgets/budgets.txt (today's if none is named)

A case takes the longest of three times, where nothing overlaps worse than it must:
  memory    bytes / (0.95 · READ)
  issue     instructions of a tile · tiles of a multiprocessor / IPC, with IPC = min(0.9, warps of a scheduler / 6): a dependent
            instruction follows after about six cycles, so a scheduler needs six warps to be busy
  products  FLOP / PEAK; with warpgroups half of the issue time is hidden behind them, the other half follows
and LAUNCH for each kernel: its start, its first loads and its last block; half of that where it begins behind another, which hides the
start but not the loads, as they wait for the other's end. share = time at READ (or at CUBLAS) / predicted time.
"""
import sys

from device_model import CLOCK, CUBLAS, L2, LAUNCH, MERGE, PEAK, READ, ROOT, SCHEDULERS, SMS, Budgets, ipc, tile_time
from latent_model import absorbed_prompt, expanded_prompt, latents


def decode_attention(b, name, requests, context, dim, size, heads=8):
    """Tiles of 64 keys, of fp8 128; four warps share one: each has all of its copies, and a quarter of its keys. Contexts are cut by
    tiles over all requests, whatever their lengths, and merged by who brings a request's last part."""
    kernel = b[name]
    keys = 128 if size == 1 else 64
    data = 2 * requests * context * heads * dim * size
    tiles = requests * heads * context / keys
    copies = 2 * keys * dim * size / 16 / 128
    products = 2 * dim / 8 * keys / 64
    issue = tile_time(kernel, tiles, 4, copies, products)
    return data / READ, max(data / READ / 0.95, issue) + LAUNCH + MERGE


def shared_prefix(b, requests, shared, own, dim=128, size=2, group=4, heads=8, once=True):
    """Decode of requests with so many keys in common and so many of their own. Read once: units of 64 rows of all requests, for which a
    warp has all keys of a tile for 16 rows; that several units read the same tiles is L2's. Partial results are written and read."""
    kernel = b[f"attention_mma_kernel<bf16,{'fp8' if size == 1 else 'bf16'},{dim},true>"]
    if not once:
        return decode_attention(b, f"attention_mma_kernel<bf16,{'fp8' if size == 1 else 'bf16'},{dim},true>", requests, shared + own, dim, size, heads)
    keys = 128 if size == 1 else 64
    data = 2 * (shared + requests * own) * heads * dim * size
    units = -(-requests * group // 64)
    merges = -(-min(requests, 64 // group) // 4)  # one after the other, where a unit's part is the last of all its requests
    tiles = heads * (units * shared + requests * own) / keys
    parts = min(16 * SMS, tiles / (256 / keys))  # of two or more for each row
    partial = 2 * requests * heads * group * (dim + 4) * 4 * (1 + max(1, parts * units * shared * heads / keys / tiles / units / heads))
    copies, products = 2 * keys * dim * size / 16 / 128, 2 * dim / 8 * keys / 64
    issue = tile_time(kernel, heads * units * shared / keys, 4, copies, 4 * products) + tile_time(kernel, heads * requests * own / keys, 4, copies, products)
    return data / READ, max((data + partial) / READ / 0.95, issue) + LAUNCH + merges * MERGE


def beside_prompt(b, context, dim, splits, heads=8):
    """One request's decode in a step with another's prompt: so many blocks a KV head have its keys."""
    kernel = b[f"attention_mma_kernel<bf16,bf16,{dim},true>"]
    data = 2 * context * heads * dim * 2
    tiles, blocks = heads * context / 64, heads * splits
    instructions = 2 * 64 * dim * 2 / 16 / 128 * kernel("copy") + 2 * dim / 8 * kernel("product")
    resident = min(kernel("blocks"), -(-blocks // SMS)) * 4
    issue = tiles / min(SMS, blocks) * 4 * instructions / SCHEDULERS / ipc(resident) / CLOCK
    return data / READ, max(data / READ / 0.95, issue) + LAUNCH + MERGE


def norm_instructions(rows, depth, warps):
    """Of a warp whose block norms rows for itself: what is executed in the SASS of small_linear_kernel from behind the wait for the kernel in
    front (ACQBULK) to the barrier behind the norm, branches followed for four warps. Of a run each thread has eight elements: 122 for
    a row of one, 170 of two, which stay in registers; 338 for one of four. Several rows are added by a warp each: 284 for two of 1,024,
    602 for three of 2,048, 604 for six of 1,024. By the same count it was 265 for a row of 1,024 before."""
    runs, thousands = -(-depth // (warps * 256)), -(-depth // 1024)
    if rows == 1:
        return 74 + (48 if depth <= 2048 else 66) * runs
    return 17 + -(-rows // warps) * (31 + 125 * min(2, thousands) + 61 * max(0, thousands - 2)) + runs * (29 + 41 * rows)


def few_rows(b, weight, columns, depth, gated=False, normed=0, ahead=True):
    """Products of one to eight rows: the warps of a block, four, of fp8 and of fewer blocks than multiprocessors eight, share sixteen
    columns and take steps of their depth in turn, with eight products for 2 KiB of fp8 and four of bf16. Begins behind another kernel.
    `normed` rows are norms of others, taken by every block: it reads them twice and writes them once, 10 bytes an element at 128 a cycle
    of its multiprocessor, with the instructions of norm_instructions(), behind accesses to L2 in a row, 350 cycles each: one for 2,048
    elements of a row alone, or for 1,024 of a warp's row. Blocks that begin together do that before they read on; later ones take the
    instructions beside others' reads. Of the weights that are fetched before the wait for the kernel in front, 64 KiB a multiprocessor,
    half is taken to be on the way and to arrive between that kernel's last read and this one's next, norms included (ahead=False: beside
    norms alone, as the model had it before)."""
    size = 1 if weight == "fp8" else 2
    few = not gated and not normed and columns / 16 <= SMS
    warps = 8 if size == 1 or few else 4
    kernel = b[f"small_linear_kernel<bf16,{weight},{str(gated).lower()},{str(normed > 0).lower()},{warps}>"]
    data = columns * depth * size
    steps = data / 2048
    blocks = min(kernel("blocks"), columns / 16 / SMS)
    rate = SCHEDULERS * ipc(blocks * warps) * CLOCK
    norm = warps * norm_instructions(normed, depth, warps) if normed else 0
    later = columns / 16 / SMS - blocks
    issue = (steps / SMS * 8 / size * kernel("product") + later * norm) / rate
    turns = -(-depth // 2048) if normed == 1 else -(-normed // warps) * -(-depth // 1024)
    head = max(blocks * normed * depth * 10 / 128 / CLOCK, blocks * norm / rate) + turns * 350 / CLOCK if normed else 0
    arrives = min(data, SMS * 65536) / 2 / READ
    gap = max(0, LAUNCH / 2 + head - arrives) if ahead else LAUNCH / 2 + max(0, head - arrives)
    return data / READ, max(data / READ / 0.95, issue) + gap


def own_heads(norms):
    """Seconds by which a decode block's making of its heads delays its first tile: 357 instructions of a warp that has a key, 237 without
    norms, at an assumed two cycles each, as there are sixteen elements to work on, and two accesses to L2 in a row; the tile is on its
    way meanwhile, for an assumed 800 cycles. The instructions are those executed in the SASS of attention_mma_kernel<bf16,bf16,128,true>
    from behind the first tile's copies to the barrier behind the heads; of a warp with queries 333 and 213 (537 and 401 before,
    and 676 of one that had a key and queries in turn)."""
    return ((357 if norms else 237) * 2 + 2 * 350 - 800) / CLOCK


def one_stream(b, layers, hidden, inner, queries, keys, vocab, norms=False, context=1024):
    """A token of a dense model in bf16 behind `context` others: products, of which that of gates has their activation, two take the
    norm of their row and two add to the residual stream, and small kernels that begin behind others: attention a layer
    (engine_emulated_launches_test counts them), seven beside, of which the first is behind a copy. norms: of
    queries and keys. Before: a kernel for heads, two norms a layer, before that activations, and each small kernel began after all
    others' end."""
    plain = lambda columns, depth, rows=0: few_rows(b, "bf16", columns, depth, normed=rows)
    products = [plain(queries + 2 * keys, hidden, 1), plain(hidden, queries),
                few_rows(b, "bf16", 2 * inner, hidden, gated=True, normed=1), plain(hidden, inner)]
    behind = LAUNCH / 2
    cache = layers * context * 2 * keys * 2
    limit = layers * sum(p[0] for p in products) + plain(vocab, hidden)[0] + cache / READ
    return limit, layers * (sum(p[1] for p in products) + behind + own_heads(norms)) + cache / READ / 0.95 + plain(vocab, hidden)[1] + LAUNCH + 6 * behind


def few_packed(b, format, bytes_of_tile, products, columns, depth):
    """Products of one to eight rows with packed integers: a warp of eight takes tiles of 16 rows by 128 columns, with so many
    products each (twice as many beside minima)."""
    kernel = b[f"few_fragments_kernel<bf16,Fragments<{format}>,1>"]
    tiles = columns / 16 * depth / 128
    data = tiles * bytes_of_tile
    resident = min(kernel("blocks"), columns / 16 / SMS) * 8
    issue = tiles / SMS * products * (1 + kernel("product")) / SCHEDULERS / ipc(resident) / CLOCK
    return data / READ, max(data / READ / 0.95, issue) + LAUNCH / 2


def prompt_tile(b, kernel, dim=128):
    """Seconds of a tile of 128 keys (heads of 256: 64) for 128 rows, without its products: of the loop's instructions of eight warps 425
    are executed (the rest is the masked form and a rescaling that few tiles need; of heads of 256 the same share of 24 products' is
    taken), and one more warp starts 32 boxes of 16 keys by 64 elements, with 94 beside. Before: copies by the same eight, and 460."""
    boxes = kernel("threads") > 256
    executed = 425 if dim <= 128 else 425 * 24 * kernel("product") / 1187
    instructions = 8 * executed + 32 * kernel("copy") + 94 if boxes else 8 * (16 * kernel("copy") + 460)
    return instructions / SCHEDULERS / 0.9 / CLOCK


def prefill(b, tokens, dim, heads=32):
    kernel = b[f"attention_wgmma_kernel<bf16,{dim}>"]
    flops = 2.0 * tokens * tokens * heads * dim
    tiles = tokens / 128 * tokens / (128 if dim <= 128 else 64) / 2 * heads
    return flops / CUBLAS, flops / PEAK + tiles / SMS * prompt_tile(b, kernel, dim) / 2 + LAUNCH


def prefill_of_warps(b, tokens, dim, heads):
    """The same by products of a warp: tiles of 64 keys for four warps of 16 rows, one block a multiprocessor."""
    kernel = b[f"attention_mma_kernel<bf16,bf16,{dim},false>"]
    tiles = (tokens / 64) ** 2 / 2 * heads
    issue = tile_time(kernel, tiles, 4, 2 * 64 * dim * 2 / 16 / 128, 2 * dim / 8 * 4)
    flops = 2.0 * tokens * tokens * heads * dim
    return flops / CUBLAS, issue + LAUNCH


def prompt_behind(b, requests, fresh, cached, dim=128, group=4, heads=8, cut=True):
    """Prompts of so many new tokens behind so many, cut as prompt_work.cuh does. A block begins with loads of its own, 1 µs; who brings
    a unit's last part reads all of them, at an assumed 48 bytes a cycle."""
    kernel = b[f"attention_wgmma_kernel<bf16,{dim}>"]
    rows, tiles = fresh * group, -(-(cached + fresh) // 128)
    units, few = requests * -(-rows // 128), SMS // heads
    parts = max(1, min(tiles // 4, (few if units <= few else 4 * few) // units)) if cut else 1
    data = 2 * requests * (cached + fresh) * heads * dim * 2
    flops = 4.0 * requests * rows * heads * (cached + fresh / 2) * dim
    tile = 4.0 * 128 * 128 * dim / PEAK * SMS + prompt_tile(b, kernel) / 2
    rounds = -(-units * parts * heads // SMS)
    merge = MERGE + parts * min(rows, 128) * (dim + 4) * 4 / 48 / CLOCK if parts > 1 else 0
    return max(data / READ, flops / CUBLAS), max(data / READ / 0.95, rounds * -(-tiles // parts) * tile) + rounds * 1e-6 + merge + LAUNCH


def widening(b, requests, keys, dim=128, heads=8):
    """fp8 keys and values to two bytes an element: 79 instructions of a warp for 256 of each, and 155 of each of the eight warps of a
    page of 128 keys (by reading SASS, for heads of 128). Begins behind another kernel."""
    elements = 2 * requests * keys * dim * heads
    pages = requests * heads * keys / 128
    issue = (elements / 512 * 79 + pages * 8 * 155) / SMS / SCHEDULERS / 0.9 / CLOCK
    return max(3 * elements / READ / 0.95, issue) + LAUNCH / 2


def widened(b, requests, fresh, cached, room=128 << 20, heads=8):
    """Prompts over an fp8 cache, widened to bf16 first: by so many KV heads at a time as the workspace has room for."""
    keys = -(-(cached + fresh) // 128) * 128
    fit = max(1, min(heads, int(room // (requests * keys * 128 * 4))))
    rounds = -(-heads // fit)
    each = -(-heads // rounds)
    attended = prefill(b, fresh, 128) if cached == 0 else None
    limit = attended[0] if attended else prompt_behind(b, requests, fresh, cached)[0]
    spent = rounds * widening(b, requests, keys, heads=each)
    return limit, spent + (attended[1] if attended else rounds * prompt_behind(b, requests, fresh, cached, heads=each)[1])


def prompts_of_warps(b, requests, fresh, cached, dim=128, group=4, heads=8):
    """The same by products of a warp, a block for 64 rows, whatever these see: tiles of 64 keys, widened where they are multiplied."""
    kernel = b[f"attention_mma_kernel<bf16,fp8,{dim},false>"]
    blocks = requests * heads * -(-fresh * group // 64)
    tiles = (cached + fresh / 2) / 64
    share = blocks / SMS if blocks > 8 * SMS else -(-blocks // SMS)
    instructions = 2 * 64 * dim / 16 / 128 * kernel("copy") + 2 * dim / 8 * 4 * kernel("product")
    resident = min(kernel("blocks"), -(-blocks // SMS)) * 4
    issue = tiles * share * 4 * instructions / SCHEDULERS / ipc(resident) / CLOCK
    flops = 4.0 * requests * fresh * group * heads * (cached + fresh / 2) * dim
    return max(2 * requests * (cached + fresh) * heads * dim * 2 / READ, flops / CUBLAS), issue + LAUNCH


def experts(b, name, bits, active, inner, hidden):
    """Both products of two tokens each with all of `active` experts: steps of 64 columns of 128 rows, of which tiles of up to eight tokens
    have a loop with the fewest products. Beside it a warp executes 650 instructions of each block's, and for a group of scales in its
    rows five (MXFP4: 5.5, two passes; by reading SASS); the scales lie beside the stages. A plan in front and a sum behind are kernels
    of their own; all four begin behind others."""
    least = f"expert_mma_kernel<{name},16>/least" in b.rows
    row = b[f"expert_mma_kernel<{name},16>" + "/least" * least]
    groups, of_group, scale = {"PlainFormat<bf16>": (0, 0, 0), "Fp8Format<bf16>": (hidden / 128, 5, 4), "Mxfp4Format": (hidden / 32, 5.5, 1)}[name]
    blocks = min(row("blocks"), (228 << 10) // (row("bytes") + groups * 128 * scale))
    kernel = lambda column: blocks if column == "blocks" else row(column)
    weights = active * 3 * inner * hidden
    data = weights * bits / 8
    copies = 128 * 64 * int(bits) / 8 / 16 / 128 + 1
    issue = tile_time(kernel, weights / 128 / 64, 4, copies, 8 if least else 16, extra=(650 + groups * of_group) / (hidden / 64))
    return data / READ, max(data / READ / 0.95, issue) + 4 * LAUNCH / 2


def prompt_experts(b, weight, tokens, top_k, count, inner, hidden):
    """Both products of all tokens, and the sum of answers, which are read once more (f32 before). An expert's tokens are rounded up to
    64, which costs 32 of them. On warpgroups a step is 256 rows by 128 tokens by 128 bytes of a token: of the loop's instructions 167 are
    executed (fp8: 418, the sums' included; MXFP4: 308, of which 128 make weights), the others begin an item; what ends one is 1,900 of a
    warp, nothing beside it (all counted by eye). A step comes out of the L2 cache, which no blocks share. fp8: x and the inner layer are
    read, and written rounded; MXFP4: x is, in another order. All begin behind others."""
    pairs, fp8, mxfp4 = tokens * top_k, weight == "fp8", weight == "Mxfp4"
    flops = 2.0 * 3 * pairs * inner * hidden
    limit = flops / CUBLAS / (2 if fp8 else 1)
    rows = pairs + 32 * count
    kernel = f"expert_wgmma_kernel<{weight},bf16>"
    if kernel not in b.rows:
        mma = b["expert_mma_kernel<" + {"fp8": "Fp8Format<bf16>", "bf16": "PlainFormat<bf16>", "Mxfp4": "Mxfp4Format"}[weight] + ",64>"]
        issue = tile_time(mma, rows / 64 * 3 * inner * hidden / 128 / 64, 4, {"fp8": 8, "bf16": 12, "Mxfp4": 6}[weight], 64)
        return limit, issue + pairs * hidden * 4 / READ + 4 * LAUNCH / 2
    depth = 128 if fp8 else 64
    ups, downs = -(-inner // 128), -(-hidden // 256)
    steps = rows / 128 * (ups * hidden + downs * inner) / depth / SMS
    items = rows / 128 * (ups + downs) / SMS
    cycles = 256 * 128 * depth * 2 * SMS * CLOCK / (PEAK * (2 if fp8 else 1))
    executed = 418 if fp8 else 308 if mxfp4 else 167
    copied = 128 * 128 + (256 * 64 * 4.25 / 8 if mxfp4 else 256 * 128)
    step = max((cycles + executed * 8 / SCHEDULERS / 0.9 / 2) / CLOCK, copied * SMS / L2)
    rounding = 3 * (tokens * hidden + pairs * inner) / READ + 2 * LAUNCH / 2 if fp8 else 4 * tokens * hidden / READ + LAUNCH / 2 if mxfp4 else 0
    return limit, steps * step + items * 1900 * 8 / SCHEDULERS / 0.9 / CLOCK + pairs * hidden * 2 / READ + rounding + 4 * LAUNCH / 2


def draws(b, rows, filtered, vocab=128256):
    """One pass over the logits: 4 instructions an element, 30 with a draw; then a block a row, which reads 2,004 maxima up to 20
    times and what it lists as often. Before: a pass for the top, with filters four of atomics on a few addresses, 70 cycles each."""
    data = rows * vocab * 4
    waves = -(-rows // (2 * SMS))
    if "sample_kernel" in b.rows:
        alone = rows / min(rows, SMS) * vocab / CLOCK
        atomics = alone * 0.4 * 70 if filtered else 0
        noise = alone * 60 / 32 / SCHEDULERS / 0.6  # a call of the generator and two logarithms an element
        return data / READ, max(data / READ / 0.95, noise + atomics) + LAUNCH
    elements = rows * vocab / 32 / min(SMS, rows * 16) / SCHEDULERS
    first = max(data / READ / 0.95, elements * (4 if filtered else 30) / 0.9 / CLOCK)
    rounds = 20 * 500 + 20 * 350 + 3000 if filtered else 2000  # cycles
    return data / READ, first + 2 * LAUNCH + waves * rounds / CLOCK


def delta_rule(b, tokens, heads, key_heads, dim=128):
    """One prompt through a gated delta net: blocks of 32 columns of a head's state, one a multiprocessor, so that time is what the
    chain of tokens takes of the slowest warp. By tokens it has about 560 instructions of each; by chunks of 64 the copies 175, norms
    600, and the longer of what two warps make of the next chunk (1,450) and two of the state (1,040), then 380. Not in the table:
    which instructions of the loop a warp executes. Of them 504 are products of a state's warp, at an assumed 0.6 of PEAK."""
    data = tokens * dim * (2 * key_heads * 2 + heads * (2 + 4))
    limit = max(data / READ, tokens * heads * dim * (3 * 2 * dim + 4 * 64) / CUBLAS)
    waves = -(-heads * dim // 32 // SMS)
    if not any(name.startswith("delta_chunks_kernel") for name in b.rows):
        return limit, waves * tokens * 560 / ipc(4) / CLOCK + LAUNCH
    chunks = waves * tokens / 64
    products = chunks * 504 * 4096 / (0.6 * PEAK / SMS / SCHEDULERS)
    return limit, max(chunks * (175 + 600 + 1450 + 380) / ipc(4) / CLOCK, products) + 2 * LAUNCH


def selective_scan(b, tokens, heads, groups, dim=64, state=128):
    """One prompt through Mamba2: time is what the chain takes of the slowest warp, as above. By tokens, in blocks of 32 rows of a
    head's state, it has about 425 instructions of each; by chunks of 64, in blocks of 64 rows, the copies 130 and the pass over the
    chunk 1,010 (two warps on a scheduler: the other makes the next chunk's matrices with 920). Not in the table, as there. Of them
    360 are products of a scheduler, 64 of which are the other's."""
    data = tokens * (heads * dim * (2 + 4) + 2 * groups * state * 2)
    limit = max(data / READ, tokens * heads * (dim * state * 2 * 2 + 64 * (state + dim)) / CUBLAS)
    name = next((n for n in b.rows if n.startswith("scan_chunks_kernel")), None)
    if name is None:
        waves = -(-heads * dim // 32 // SMS // int(b["selective_scan_kernel<float,128,false>"]("blocks")))
        return limit, waves * tokens * 425 / ipc(4) / CLOCK + LAUNCH
    chunks = -(-heads * dim // 64 // SMS // int(b[name]("blocks"))) * tokens / 64
    products = chunks * 360 * 4096 / (0.6 * PEAK / SMS / SCHEDULERS)
    return limit, max(chunks * (130 + 1010) / ipc(4) / CLOCK, products) + 2 * LAUNCH


def row_operator(b, name, bytes_of_thread, rows_bytes):
    kernel = b[name]
    threads = rows_bytes / bytes_of_thread
    issue = threads / 32 / SMS / SCHEDULERS * kernel("code") / 0.9 / CLOCK
    return rows_bytes / READ, max(rows_bytes / READ / 0.95, issue) + LAUNCH


CASES = {
    "decode attention, 32 requests of 4,096, D = 128": lambda b: decode_attention(b, "attention_mma_kernel<bf16,bf16,128,true>", 32, 4096, 128, 2),
    "the same, fp8 cache": lambda b: decode_attention(b, "attention_mma_kernel<bf16,fp8,128,true>", 32, 4096, 128, 1),
    "decode attention, 128 requests of 1,024": lambda b: decode_attention(b, "attention_mma_kernel<bf16,bf16,128,true>", 128, 1024, 128, 2),
    "decode attention, 32 of 4,096, D = 64": lambda b: decode_attention(b, "attention_mma_kernel<bf16,bf16,64,true>", 32, 4096, 64, 2),
    "decode attention, 32 of 4,096, D = 256": lambda b: decode_attention(b, "attention_mma_kernel<bf16,bf16,256,true>", 32, 4096, 256, 2),
    "one request of 100,000 among 255 of 1,024": lambda b: decode_attention(b, "attention_mma_kernel<bf16,bf16,128,true>", 1, 100000 + 255 * 1024, 128, 2),
    "64 requests of 4,096 in common and 512 of their own, each for itself": lambda b: shared_prefix(b, 64, 4096, 512, once=False),
    "the same, what is in common once": lambda b: shared_prefix(b, 64, 4096, 512),
    "4 requests of 512 in common and 512 of their own, each for itself": lambda b: shared_prefix(b, 4, 512, 512, once=False),
    "4 requests, what is in common once": lambda b: shared_prefix(b, 4, 512, 512),
    "decode of 65,536 beside a prompt": lambda b: beside_prompt(b, 65536, 128, 64),
    "prefill 8,192, D = 128": lambda b: prefill(b, 8192, 128),
    "prefill 8,192, D = 256, 16 heads, products of warps": lambda b: prefill_of_warps(b, 8192, 256, 16),
    "prefill 8,192, D = 256, 16 heads": lambda b: prefill(b, 8192, 256, 16),
    "64 new tokens behind 100,000, not cut": lambda b: prompt_behind(b, 1, 64, 100000, cut=False),
    "64 new tokens behind 100,000": lambda b: prompt_behind(b, 1, 64, 100000),
    "64 new tokens behind 8,192 each, 4 requests, not cut": lambda b: prompt_behind(b, 4, 64, 8192, cut=False),
    "64 new tokens behind 8,192 each, 4 requests": lambda b: prompt_behind(b, 4, 64, 8192),
    "4 rows of drafts behind 16,384 each, 8 heads a KV head, 8 requests, not cut": lambda b: prompt_behind(b, 8, 4, 16384, group=8, cut=False),
    "4 rows of drafts behind 16,384 each, 8 heads a KV head, 8 requests": lambda b: prompt_behind(b, 8, 4, 16384, group=8),
    "prefill 8,192, D = 128, fp8 cache, products of warps": lambda b: prompts_of_warps(b, 1, 8192, 0),
    "prefill 8,192, D = 128, fp8 cache": lambda b: widened(b, 1, 8192, 0),
    "512 new tokens behind 7,680, fp8 cache, products of warps": lambda b: prompts_of_warps(b, 1, 512, 7680),
    "512 new tokens behind 7,680, fp8 cache": lambda b: widened(b, 1, 512, 7680),
    "64 new tokens behind 100,000, fp8 cache, products of warps": lambda b: prompts_of_warps(b, 1, 64, 100000),
    "64 new tokens behind 100,000, fp8 cache": lambda b: widened(b, 1, 64, 100000),
    "latent decode, 32 of 4,096, 16 heads": lambda b: latents(b, 32 * [4096], 16),
    "latent decode, 32 of 4,096, 128 heads": lambda b: latents(b, 32 * [4096], 128),
    "latent decode, 32 of 4,096, 16 heads, fp8 cache": lambda b: latents(b, 32 * [4096], 16, cache="fp8"),
    "latent decode, 32 of 4,096, 128 heads, fp8 cache": lambda b: latents(b, 32 * [4096], 128, cache="fp8"),
    "latent decode, 8 of 4,096, 128 heads, 4 rows each": lambda b: latents(b, 8 * [4096], 128, 4),
    "latent decode, one of 100,000 among 255 of 1,024, 16 heads": lambda b: latents(b, 255 * [1024] + [100000], 16),
    "latent prompt, 4,096 new tokens, 128 heads, absorbed": lambda b: absorbed_prompt(b, 4096, 0, 128),
    "latent prompt, 4,096 new tokens, 128 heads": lambda b: expanded_prompt(b, 4096, 0, 128),
    "latent prompt, 512 new tokens behind 7,680, 128 heads, absorbed": lambda b: absorbed_prompt(b, 512, 7680, 128),
    "latent prompt, 512 new tokens behind 7,680, 128 heads": lambda b: expanded_prompt(b, 512, 7680, 128),
    "latent prompt, 512 new tokens behind 7,680, 16 heads, absorbed": lambda b: absorbed_prompt(b, 512, 7680, 16),
    "latent prompt, 512 new tokens behind 7,680, 16 heads": lambda b: expanded_prompt(b, 512, 7680, 16),
    "latent prompt, 200 new tokens behind 7,680, 16 heads, absorbed": lambda b: absorbed_prompt(b, 200, 7680, 16),
    "latent prompt, 200 new tokens behind 7,680, 16 heads": lambda b: expanded_prompt(b, 200, 7680, 16),
    "1 to 8 rows, bf16, 4,096 to 28,672": lambda b: few_rows(b, "bf16", 28672, 4096),
    "1 to 8 rows, bf16, 4,096 to 4,096": lambda b: few_rows(b, "bf16", 4096, 4096),
    "1 to 8 rows, fp8, 4,096 to 28,672": lambda b: few_rows(b, "fp8", 28672, 4096),
    "1 to 8 rows, fp8, 14,336 to 4,096": lambda b: few_rows(b, "fp8", 4096, 14336),
    "one stream of 8B (Llama 3)": lambda b: one_stream(b, 32, 4096, 14336, 4096, 1024, 128256),
    "one stream of 1B (Llama 3.2)": lambda b: one_stream(b, 16, 2048, 8192, 2048, 512, 128256),
    "one stream of 0.6B (Qwen3)": lambda b: one_stream(b, 28, 1024, 3072, 2048, 1024, 151936, norms=True),
    "1 to 8 rows, 4 bits in groups of 128, 4,096 to 28,672": lambda b: few_packed(b, "4,128,false,false", 1056, 8, 28672, 4096),
    "1 to 8 rows, 4 bits with minima of 32, 4,096 to 28,672": lambda b: few_packed(b, "4,32,true,false", 1280, 16, 28672, 4096),
    "1 to 8 rows, 8 bits in groups of 32, 4,096 to 28,672": lambda b: few_packed(b, "8,32,false,false", 2176, 8, 28672, 4096),
    "gated delta net, a prompt of 8,192, 32 heads": lambda b: delta_rule(b, 8192, 32, 16),
    "Mamba2, a prompt of 8,192, 128 heads of 64": lambda b: selective_scan(b, 8192, 128, 8),
    "experts bf16, 128 of 768 × 2,048": lambda b: experts(b, "PlainFormat<bf16>", 16, 128, 768, 2048),
    "experts fp8, 256 of 2,048 × 7,168": lambda b: experts(b, "Fp8Format<bf16>", 8, 256, 2048, 7168),
    "experts MXFP4, 32 of 2,880 × 2,880": lambda b: experts(b, "Mxfp4Format", 4.25, 32, 2880, 2880),
    "experts bf16, a prompt of 8,192, 128 of 768 × 2,048, 8 a token": lambda b: prompt_experts(b, "bf16", 8192, 8, 128, 768, 2048),
    "experts fp8, a prompt of 8,192, 256 of 2,048 × 7,168, 8 a token": lambda b: prompt_experts(b, "fp8", 8192, 8, 256, 2048, 7168),
    "experts MXFP4, a prompt of 8,192, 32 of 2,880 × 2,880, 4 a token": lambda b: prompt_experts(b, "Mxfp4", 8192, 4, 32, 2880, 2880),
    "draws, 256 rows of 128,256": lambda b: draws(b, 256, False),
    "draws with top_k 50, 256 rows": lambda b: draws(b, 256, True),
    "draws with top_k 50, 1 row": lambda b: draws(b, 1, True),
    "silu(gate) · up, 8,192 × 14,336": lambda b: row_operator(b, "gated_activation_kernel<bf16,0>", 48, 8192 * 14336 * 6),
}


def main(*paths):
    tables = [Budgets(path) for path in paths or (ROOT / "tests/cuda_budgets/budgets.txt",)]
    print("| case | limit, µs |" + " predicted, µs | share |" * len(tables))
    print("| --- | --- |" + " --- | --- |" * len(tables))
    for name, case in CASES.items():
        times = [case(table) for table in tables]
        print(f"| {name} | {times[0][0] * 1e6:.0f} |" + "".join(f" {t * 1e6:.0f} | {limit / t:.2f} |" for limit, t in times))


if __name__ == "__main__":
    main(*sys.argv[1:])
