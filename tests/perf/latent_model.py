"""Latent attention in cuda_model.py."""
from device_model import CLOCK, CUBLAS, LAUNCH, MERGE, PEAK, READ, SCHEDULERS, SMS, ipc, tile_time


def latents(b, lengths, heads, rows=1, cache="bf16"):
    """Requests of so many rows; units of 64 rows, heads by tokens, see tiles of 32 keys; few heads fill a part. The limit is the longer
    of reading the cache and of the products at cuBLAS' rate. Every multiprocessor has as many tiles as the others; with warpgroups
    two of them take a fourth of the scores' instructions and their own 131 a tile (that rescales 128 sums more, once), or 257 where they
    widen it, 11 for each of nine panels; then queries are made f16 for each part, an assumed 1 µs before its first scores. A unit in
    several blocks writes its sums, which are read again; a block's further parts begin with loads of their own, 1 µs, and the merge
    half of a launch behind. Before: nine turns of the scores' loop, of which the table counts one, and as many splits for all as
    filled the device."""
    data = sum(lengths) * 576 * (1 if cache == "fp8" else 2)
    flops = 2.0 * sum(lengths) * rows * heads * (576 + 512)
    limit = max(data / READ, flops / CUBLAS)
    units = -(-rows * heads // 64)
    counts = [-(-length // 32) for length in lengths for _ in range(units)]
    tiles = sum(counts)
    if f"latent_wgmma_kernel<bf16,{cache}>" not in b.rows:
        issue = tile_time(b[f"latent_attention_kernel<bf16,{cache}>"], tiles, 8, 5 if cache == "fp8" else 9, 72, extra=8 * 26)
        return limit, max(data / READ / 0.95, issue) + 2 * LAUNCH
    share = max(8, -(-tiles // SMS))
    kernel = b["latent_wgmma_kernel<bf16,bf16>"]
    instructions = 4 * 36 * kernel("product") + 8 * (257 if cache == "fp8" else 131)
    issue = share * instructions / SCHEDULERS / ipc(12) / CLOCK
    ends = [sum(counts[:i + 1]) for i in range(len(counts))]
    cut = [(end - 1) // share - (end - count) // share + 1 for end, count in zip(ends, counts)]
    parts = sum(n for n in cut if n > 1)
    most = -(-sum(cut) // -(-tiles // share))
    partials = 2 * parts * min(64, rows * heads) * 514 * 4 / READ
    products = share * 64 * 32 * 2 * (576 + 512) / PEAK * SMS
    return limit, max(data / READ / 0.95, issue, products) + partials + (most - 1 + most * (cache == "fp8")) * 1e-6 + 1.5 * LAUNCH


def absorbed_prompt(b, fresh, cached, heads):
    """A prompt's attention on latents, and the products that absorb: blocks of 64 rows, heads by tokens, each with the tiles of 32 that
    its rows see. Queries as they were, absorbed ones and attended latents are written and read."""
    pairs = fresh * cached + fresh * (fresh + 1) / 2
    flops = 2.0 * heads * (pairs * (576 + 512) + fresh * 512 * 256)
    tiles = heads * pairs / 64 / 32
    kernel = b["latent_wgmma_kernel<bf16,bf16>"]
    issue = (4 * 36 * kernel("product") + 8 * 131) / SCHEDULERS / ipc(12) / CLOCK
    units, longest = -(-fresh * heads // 64), (cached + fresh) / 32  # cut up to 256 new tokens, beyond a block each
    rounds = max(tiles / SMS, longest * (units // SMS + 1) if fresh > 256 and units < 2 * SMS else 0)
    attention = rounds * max(issue, 64 * 32 * 2 * (576 + 512) / PEAK * SMS)
    products = max(2.0 * fresh * heads * 512 * 256 / CUBLAS, 2 * fresh * heads * (192 + 576 + 512 + 128) / READ)
    return flops / CUBLAS, attention + products + 5 * LAUNCH


def expanded_prompt(b, fresh, cached, heads):
    """The same expanded, 4,096 positions at a time: rows gathered, keys and values made, written, and read by blocks of 128 rows in tiles
    of 128, of which a warp executes what attention_wgmma does for heads of 128 (425) and 16 for four products more. Where units are
    fewer than half of the multiprocessors they are cut. Rows of several pieces write their sums and read them again; a block begins
    with loads of its own, 1 µs. Limit: that of the fewer multiplications."""
    kernel, pairs = b["expanded_wgmma_kernel<bf16>"], fresh * cached + fresh * (fresh + 1) / 2
    positions = fresh + cached
    limit = 2.0 * heads * (pairs * 320 + positions * 512 * 256) / CUBLAS
    tile = 2.0 * 128 * 128 * 320 / PEAK * SMS + 8 * 441 / SCHEDULERS / 0.9 / CLOCK / 2
    total = 0.0
    for begin in range(0, positions, 4096):
        count = min(4096, positions - begin)
        rows = fresh - max(0, begin - cached)
        units = -(-rows // 128)
        seen = [-(-min(count, cached + fresh - rows + min(rows, 128 * (u + 1)) - begin) // 128) for u in range(units)]
        parts = max(1, min(SMS // (units * heads), -(-count // 128) // 4))
        most = max(sum(seen) * heads / SMS, -(-max(seen) // parts) * -(-units * parts * heads // SMS) if units * parts * heads < 2 * SMS else 0)
        merge = MERGE + parts * min(rows, 128) * 132 * 4 / 48 / CLOCK if parts > 1 else 0
        states = rows * heads * 132 * 4 * ((begin > 0) + (begin + count < positions)) / READ
        product = max(2.0 * count * heads * 512 * 256 / CUBLAS, 2 * count * heads * 256 / READ)
        blocks = -(-units * parts * heads // SMS)
        total += 2 * count * 1152 / READ + product + most * tile + blocks * 1e-6 + merge + states + 3 * LAUNCH
    return limit, total
