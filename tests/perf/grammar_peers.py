#!/usr/bin/env python3
"""Grammar engines on the same schemas, texts and vocabulary, one after another, one thread.

    tests/perf/grammar_peers.py TOKENIZER_DIR VECTORS.jsonl GRAMMAR_PERF [--schemas 60] [--vocab 128256]

TOKENIZER_DIR holds a byte-level tokenizer.json; its tokens are filled up with pairs of tokens to --vocab. Peers that are
installed (xgrammar, llguidance) are measured; without them only Quire is.
"""
import argparse, json, pathlib, statistics, subprocess, tempfile, time


def byte_level():
    known = list(range(33, 127)) + list(range(161, 173)) + list(range(174, 256))
    chars, extra = {chr(b): b for b in known}, 0
    for b in range(256):
        if b not in known:
            chars[chr(256 + extra)] = b
            extra += 1
    return chars


def vocabulary(folder, size):
    chars, tokens = byte_level(), []
    model = json.loads((folder / "tokenizer.json").read_text())["model"]["vocab"]
    for text in sorted(model, key=model.get):
        if all(c in chars for c in text):
            tokens.append(bytes(chars[c] for c in text))
    seen, i, base = set(tokens), 0, [t for t in tokens[256:6000] if t.strip().isalpha()]
    while len(tokens) < size - 1:
        a, b = base[i * 7919 % len(base)], base[(i * 104729 + i // len(base)) % len(base)].strip()
        i += 1
        if a + b not in seen and len(a + b) < 24:
            seen.add(a + b)
            tokens.append(a + b)
    return tokens + [b"<|end|>"]


def encode(table, longest, text):
    data, at, ids = text.encode(), 0, []
    while at < len(data):
        n = next(n for n in range(min(longest, len(data) - at), 0, -1) if data[at:at + n] in table)
        ids.append(table[data[at:at + n]])
        at += n
    return ids


def show(name, compile_us, mask_us, refused):
    def line(what, x):
        x = sorted(x)
        at = lambda p: x[min(len(x) - 1, int(p * len(x)))]
        print(f"{name} {what}: n {len(x)} p50 {at(.5):.1f} p90 {at(.9):.1f} p99 {at(.99):.1f} max {x[-1]:.1f} mean {statistics.mean(x):.1f} µs")
    if compile_us:
        line("compile", compile_us)
        line("mask", mask_us)
    print(f"{name} refused: {refused}", flush=True)


def measure(name, cases, start):
    compile_us, mask_us, refused = [], [], 0
    for case in cases:
        t = time.thread_time()
        try:
            mask, accept = start(case["schema"])
        except Exception:
            refused += 1
            continue
        compile_us.append((time.thread_time() - t) * 1e6)
        for token in case["ids"]:
            t = time.thread_time()
            mask()
            mask_us.append((time.thread_time() - t) * 1e6)
            if not accept(token):
                break
    show(name, compile_us, mask_us, refused)


def llguidance_peer(tokens, eos):
    import llguidance, numpy
    from llguidance._tokenizer import TokenizerWrapper
    class Inner:
        eos_token_id, bos_token_id, special_token_ids = eos, None, [eos]
        def __call__(self, text):
            return [b for b in text] if isinstance(text, bytes) else list(text.encode())
    inner = Inner()
    inner.tokens = tokens
    tokenizer = llguidance.LLTokenizer(TokenizerWrapper(inner))
    mask = numpy.zeros((len(tokens) + 31) // 32, dtype=numpy.uint32)
    def start(schema):
        matcher = llguidance.LLMatcher(tokenizer, llguidance.LLMatcher.grammar_from_json_schema(json.dumps(schema)), log_level=0)
        if matcher.get_error():
            raise ValueError
        matcher.unsafe_compute_mask_ptr(mask.ctypes.data, mask.nbytes)
        return lambda: matcher.unsafe_compute_mask_ptr(mask.ctypes.data, mask.nbytes), matcher.consume_token
    return start


def xgrammar_peer(tokens, eos):
    import xgrammar
    info = xgrammar.TokenizerInfo(tokens, vocab_size=len(tokens), stop_token_ids=[eos])
    compiler = xgrammar.GrammarCompiler(info, max_threads=1, cache_enabled=False)
    bits = xgrammar.allocate_token_bitmask(1, len(tokens))
    def start(schema):
        matcher = xgrammar.GrammarMatcher(compiler.compile_json_schema(json.dumps(schema)))
        return lambda: matcher.fill_next_token_bitmask(bits), matcher.accept_token
    return start


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("tokenizer", type=pathlib.Path)
    parser.add_argument("vectors", type=pathlib.Path)
    parser.add_argument("perf")
    parser.add_argument("--schemas", type=int, default=60)
    parser.add_argument("--vocab", type=int, default=128256)
    args = parser.parse_args()
    tokens = vocabulary(args.tokenizer, args.vocab)
    eos, table = len(tokens) - 1, {}
    for i, token in enumerate(tokens):
        table.setdefault(token, i)
    longest, cases = max(map(len, tokens)), []
    for line in open(args.vectors, encoding="utf-8", newline="\n"):
        vector = json.loads(line)
        good = [c["text"] for c in vector["cases"] if c["valid"]]
        if vector["tier"] == "must" and good and "object" in json.dumps(vector["spec"]):
            cases.append({"schema": vector["spec"]["schema"], "ids": encode(table, longest, max(good, key=len))})
    cases = cases[::max(1, len(cases) // args.schemas)][:args.schemas]
    with tempfile.NamedTemporaryFile("w", suffix=".jsonl") as out:
        out.write(json.dumps({"vocab": [t.hex() for t in tokens], "eos": eos}) + "\n")
        out.writelines(json.dumps(c) + "\n" for c in cases)
        out.flush()
        print(subprocess.run([args.perf, out.name], stdout=subprocess.PIPE, text=True).stdout, flush=True)
    for name, peer in (("llguidance", llguidance_peer), ("xgrammar", xgrammar_peer)):
        try:
            start = peer(tokens, eos)
        except ImportError:
            print(name, "is not installed")
            continue
        measure(name, cases, start)


if __name__ == "__main__":
    main()
