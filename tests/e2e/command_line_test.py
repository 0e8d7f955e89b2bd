#!/usr/bin/env python3
"""What is wrong with a command line is said by name, and nothing waits for ever.

    tests/e2e/command_line_test.py build/release/app/quire
"""
import os
import pathlib
import shutil
import struct
import subprocess
import sys
import tempfile
import urllib.error
import urllib.request

from serve_process import Server

TINY = "models/quire-tiny"
GGUF = "tests/data/gguf/models/gemma3/model.gguf"


def says(quire, command, *arguments, fails=True):
    run = subprocess.run([quire, command, *arguments], capture_output=True, text=True, timeout=60)
    if (run.returncode != 0) != fails:
        sys.exit(f"FAILED: {command} {arguments} ended with {run.returncode}: {run.stdout} {run.stderr}")
    return run.stdout + run.stderr


def expect(text, *parts):
    for part in parts:
        if part not in text:
            sys.exit(f"FAILED: no {part!r} in {text!r}")


def numbers(quire):
    for command in ("serve", "plan"):
        for seed in ("-1", "18446744073709551616", "abc", "1.5"):
            expect(says(quire, command, TINY, f"--seed={seed}"), "--seed", seed, "not a whole number from 0 to 18446744073709551615")
        expect(says(quire, command, TINY, "--speculative-method", "ngram", "--num-speculative-tokens", "abc"),
               "--num-speculative-tokens", '"abc"')


def names(quire):
    expect(says(quire, "plan", TINY, "--max-num-seq", "4"), "--max-num-seq: no such flag. Did you mean --max-num-seqs?")
    expect(says(quire, "plan", TINY, "--max_num_seqs", "4", fails=False), "concurrency")
    expect(says(quire, "engine", TINY, "--lisen", "unix:/tmp/none"), "--listen")
    expect(says(quire, "plan", TINY, "--kv-cache-memory", "1GiB"), "Did you mean --kv-cache-memory-bytes?")
    for command, flag, meant in (("pull", "--paralel", "--parallel"), ("chat", "--hide-think", "--hide-thinking"),
                                 ("proxy", "--max-connection", "--max-connections"), ("bench", "--max-num-seq", "--max-num-seqs")):
        given = ("--decode", "http://127.0.0.1:1") if command == "proxy" else (TINY,)
        expect(says(quire, command, *given, f"{flag}=1"), f"{flag}: no such flag. Did you mean {meant}?")
    expect(says(quire, "serv"), 'no command "serv". Did you mean serve?')
    with tempfile.NamedTemporaryFile("w", suffix=".toml") as file:
        file.write("max_model_length = 5\n")
        file.flush()
        expect(says(quire, "serve", TINY, "--config", file.name), '"max-model-length" (line 1) is not a flag', "--max-model-len?")
    expect(says(quire, "serve", TINY, "--default-chat-template-kwargs", "{bad", "--port", "0"),
           "--default-chat-template-kwargs must be a JSON object")


def missing_values(quire):
    for command, given, refused in (
            ("serve", (TINY, "--port", "0", "--api-key", "--host", "127.0.0.1"), "--api-key: needs a value before --host"),
            ("serve", (TINY, "--port", "0", "--swap-space", "--deterministic"), "--swap-space: needs a value before --deterministic"),
            ("engine", (TINY, "--listen", "--rank", "1"), "--listen: needs a value before --rank"),
            ("proxy", ("--decode", "--port", "0"), "--decode: needs a value before --port"),
            ("chat", ("--url", "--hide-thinking"), "--url: needs a value before --hide-thinking"),
            ("plan", (TINY, "--max-num-seqs"), "--max-num-seqs: needs a value"),
            ("serve", ("-hf", "org/model"), "write org/name as MODEL"),
            ("proxy", ("--bogus",), "--bogus: no such flag")):
        expect(says(quire, command, *given), refused)
    for given in (("serve", TINY, "--otlp-traces-endpoint", "grpc://x"), ("serve", TINY, "--default-chat-template-kwargs", "x"),
                  ("proxy", "--bogus"), ("serve", "-hf", "org/model")):
        run = subprocess.run([quire, *given], capture_output=True, text=True, timeout=60)
        expect(f"{given} ends with {run.returncode}", "ends with 105")


def full_disk(quire):
    for command in (("plan", TINY), ("--version",), ("models",), ("doctor", "--seconds", "0"), ("--help",), ("serve", "--help"),
                    ("serve", TINY, "--print-config")):
        with open("/dev/full", "w") as full:
            done = subprocess.run([quire, *command], stdout=full, stderr=subprocess.PIPE, text=True)
        if command != ("models",) and (done.returncode != 7 or "cannot write what was asked for" not in done.stderr):
            sys.exit(f"FAILED: {command} on a full disk: {done.returncode} {done.stderr}")


def full_disk_of_files(quire):
    done = subprocess.run([quire, "bench", TINY, "--n-prompt", "16", "--n-gen", "0", "-r", "1", "--json", "/dev/full"], capture_output=True, text=True)
    if done.returncode != 7:
        sys.exit(f"FAILED: a benchmark into a full disk: {done.returncode} {done.stderr}")


def damaged_folders(quire):
    """Models as they lie about after half of a download."""
    lfs = "version https://git-lfs.github.com/spec/v1\noid sha256:abc\nsize 630\n"
    with tempfile.TemporaryDirectory() as root:
        def copy(name, without=()):
            shutil.copytree(TINY, f"{root}/{name}")
            for file in without:
                os.remove(f"{root}/{name}/{file}")
            return pathlib.Path(root, name)

        pointer = copy("pointer")
        (pointer / "config.json").write_text(lfs)
        expect(says(quire, "plan", str(pointer)), "config.json: is a pointer of Git LFS")
        words = copy("words")
        (words / "tokenizer.json").write_text(lfs)
        expect(says(quire, "doctor", str(words), "--seconds", "0"), "tokenizer.json: is a pointer of Git LFS")
        adapter = copy("adapter", without=("config.json", "model.safetensors"))
        (adapter / "adapter_config.json").write_text("{}")
        expect(says(quire, "plan", str(adapter)), "holds an adapter", "merge")
        pickle = copy("pickle", without=("model.safetensors",))
        (pickle / "pytorch_model.bin").write_bytes(b"PK")
        expect(says(quire, "doctor", str(pickle), "--seconds", "0"), "pickles are not read", "save_pretrained")
        (pickle / "model.safetensors").symlink_to("/nowhere/blob")
        expect(says(quire, "doctor", str(pickle), "--seconds", "0"), "is a link to /nowhere/blob, where there is nothing")
        link = pathlib.Path(root, "link")
        link.symlink_to("/nowhere/model")
        expect(says(quire, "plan", str(link)), "is a link to /nowhere/model")
        expect(says(quire, "plan", "org/model-q8.gguf"), "org/model-q8.gguf: no such file")
        expect(says(quire, "engine", TINY, "--listen", f"unix:{root}/s", "--engine-secret-file", root), "--engine-secret-file", "is a folder")
        expect(says(quire, "engine", TINY, "--listen", f"unix:{root}/s", "--engine-secret-file", "/dev/zero"), "is longer than 4096 bytes")
    expect(says(quire, "plan", TINY, "--quantization", "gptq_marlin"), "gptq_marlin", "has no quantization_config")
    expect(says(quire, "plan", TINY, "--hf-overrides", '{"rope_scaling":{}}'), "rope_scaling", "write it into the model's config.json")
    for name in ("n=2", "messages=[]", "stream=false", "model=x"):
        expect(says(quire, "chat", TINY, "--prompt", "a", "--set", name), f"{name.split('=')[0]} is not a setting here")


def printed_configuration(quire):
    with tempfile.NamedTemporaryFile("w", suffix=".toml") as file:
        printed = says(quire, "serve", TINY, "--max-num-seqs", "7", "--print-config", fails=False)
        expect(printed, f'model = "{TINY}"', 'max-num-seqs = "7"')
        file.write(printed)
        file.flush()
        if says(quire, "serve", "--config", file.name, "--print-config", fails=False) != printed:
            sys.exit("FAILED: a printed configuration that is read back is another")


def fields(quire):
    """Below the command line a text names a field; whoever reads it sees the flag."""
    expect(says(quire, "plan", TINY, "--max-num-batched-tokens", "8"), "--max-num-batched-tokens must be at least --max-num-seqs (256), not 8")
    expect(says(quire, "plan", TINY, "--num-gpu-blocks-override", "3", "--json"), "What works: --max-model-len 32")
    expect(says(quire, "serve", TINY, "--port", "0", "--no-enable-prefix-caching", "--hash-block-size", "16"),
           "--hash-block-size has no effect with --no-enable-prefix-caching; remove it")
    with Server(quire, TINY) as server:
        try:
            server.ask("/v1/completions", {"model": "m", "prompt": ["a"] * 700, "n": 2})
            sys.exit("FAILED: 1400 choices were taken")
        except urllib.error.HTTPError as refused:
            expect(refused.read().decode(), "(--max-num-seqs, --max-num-queued-reqs)")


def idle_flags(quire):
    """What nothing would read is refused by name."""
    mock = ("--device", "mock")
    for flags, words in ((("--allowed-methods", "GET"), "without --allowed-origins"),
                         (("--engine-timeout", "5"), "without --engine, --engine-listen or --engine-processes"),
                         (("--api-key", "k", "--allowed-hosts", "a.b"), "--allowed-hosts: has no effect beside a key"),
                         ((*mock, "--num-gpu-blocks-override", "100"), "with --device mock"), ((*mock, "--runner", "pooling"), "with --device mock"),
                         ((*mock, "--quantization", "int8"), "with --device mock"), ((*mock, "--no-async-scheduling"), "with --device mock"),
                         ((*mock, "--speculative-method", "ngram", "--num-speculative-tokens", "2"), "with --device mock"),
                         ((*mock, "--engine-processes"), "with --device mock")):
        expect(says(quire, "serve", TINY, "--port", "0", *flags), "has no effect", words)
    for flags in (("--engine-plaintext",), ("--engine-secret-file", "/nofile"), ("--engine-ssl-ca-certs", "/nofile")):
        expect(says(quire, "serve", TINY, "--port", "0", *flags), f"{flags[0]}: has no effect without --engine or --engine-listen")
    for command in ("bench", "check"):
        for flags in (("--max-num-seqs", "8"), ("--served-model-name", "a"), ("--data-parallel-size", "2"), ("--kv-role", "prefill")):
            expect(says(quire, command, TINY, *flags), f"{flags[0]}: has no effect on a {'benchmark' if command == 'bench' else command}")
    expect(says(quire, "bench", TINY, "--speculative-method", "ngram", "--num-speculative-tokens", "2"), "--speculative-method: has no effect on a benchmark")
    expect(says(quire, "check", "--golden", "tests/data/golden/drafts/eagle-llama", "--speculative-method", "ngram", "--num-speculative-tokens", "2"),
           "--speculative-method: has no effect on a check of drafts")
    expect(says(quire, "bench", TINY, "--n-promt", "5"), "Did you mean --n-prompt?")
    expect(says(quire, "bench", "serve", "--model", "m"), "quire-load")
    for command in ("bench", "plan"):
        expect(says(quire, command), "MODEL")
    for command in ("serve", "bench", "plan", "doctor"):
        expect(says(quire, command, TINY + "/model.safetensors"), "model.safetensors is a file; give its folder, or a .gguf file")
    expect(says(quire, "plan", TINY, "--max-model-len", "9999999", "--max-model-len", "9999998"), "9999998")
    for command, flags in (("bench", ()), ("plan", ()), ("engine", ("--listen", "unix:/tmp/none"))):
        expect(says(quire, command, "models/none-such-here", *flags), "models/none-such-here")
        expect(says(quire, command, "/none", *flags), "/none: no such folder or file")


def seconds(quire):
    """Lengths of time that are none, or of which nothing could come."""
    for flag, wrong, least in (("--engine-timeout", "0", "0.1"), ("--engine-timeout", "", "0.1"), ("--engine-ready-timeout", "0", "0.1"),
                               ("--request-timeout", "0", "0.001"), ("--drain-delay", "", "0 or from 0.001"), ("--shutdown-timeout", "0.0001", "0.001"),
                               ("--keep-alive-timeout", "nan", "0.001"), ("--shutdown-timeout", "1e7", "1000000")):
        run = subprocess.run([quire, "serve", TINY, "--port", "0", "--engine", "unix:/tmp/none", flag, wrong], capture_output=True, text=True, timeout=60)
        expect(repr(run.returncode), "105")
        expect(run.stderr, flag, f'"{wrong}"', least)


def small_slips(quire):
    port = ("--port", "0")
    expect(says(quire, "serve", TINY, *port, "--kv-role", "decode", "--kv-peer", "10.0.0.7:0"), "--kv-peer", "port 0")
    expect(says(quire, "serve", TINY, *port, "--speculative-config", '{"method": "ngram", "num_speculative_tokens": 2, "num_speculative_tokens": 3}'),
           "--speculative-config", "num_speculative_tokens", "given twice")
    said = says(quire, "serve", TINY, *port, "--engine", "tcp://127.0.0.1:3", "--engine-ssl-ca-certs", "/nofile")
    expect(said, "--engine-ssl-ca-certs: /nofile: No such file or directory")
    expect(says(quire, "serve", TINY, *port, "--max-model-len", "9999999"), "max-model-len")
    with Server(quire, TINY, "--device", "cpu", "--max-model-len", "1") as server:
        expect(server.ask("/v1/models"), '"max_model_len":1')
    with tempfile.TemporaryDirectory() as folder:
        with Server(quire, TINY, "--num-gpu-blocks-override", "600", "--kv-role", "prefill", "--kv-listen", f"unix:{folder}/kv") as server:
            expect(repr(os.listdir(folder)), "kv")
            server.post("/v1/completions", prompt="a", max_tokens=1, kv_transfer_params={"junk": 2**70, "remote_block_ids": [[2**64]]})
        expect(repr(os.listdir(folder)), "[]")
    drafts = '{"method": "ngram", "num_speculative_tokens": 2}'
    with Server(quire, TINY, "--num-gpu-blocks-override", "600", "--speculative-config", drafts) as server:
        metrics = server.ask("/metrics")
        for name in ("num_drafts", "num_draft_tokens", "num_accepted_tokens", "num_accepted_tokens_per_pos"):
            expect(metrics, f"vllm:spec_decode_{name}_total{{")
        expect(repr(server.metric("vllm:spec_decode_num_drafts_total")), "0")


def status(server, **headers):
    try:
        with urllib.request.urlopen(urllib.request.Request(server.base + "/version", headers=headers)) as reply:
            return reply.status, reply.headers.get("Access-Control-Allow-Origin")
    except urllib.error.HTTPError as error:
        return error.code, None


def lists(quire):
    """A JSON list of words, as vLLM takes it, is these words."""
    with Server(quire, TINY, "--device", "mock", "--allowed-origins", '["https://a.b", "https://c"]', "--allowed-hosts", '["a.b","c.d"]') as server:
        for origin in ("https://a.b", "https://c"):
            expect(repr(status(server, Origin=origin)), repr((200, origin)))
        expect(repr(status(server, Origin="https://d")), repr((200, None)))
        for host, code in (("a.b", 200), ("c.d", 200), ("d.e", 403)):
            expect(repr(status(server, Host=host)), str(code))
    with Server(quire, TINY, "--device", "mock", "--allowed-origins", '["*"]') as server:
        expect(repr(status(server, Origin="https://a.b")), repr((200, "*")))
    for flag, wrong in (("--allowed-origins", '["https://a.b'), ("--allowed-hosts", "a.b:80"), ("--allowed-hosts", "https://a.b"), ("--allowed-hosts", '["a.b'), ("--allowed-methods", '[5"]')):
        expect(says(quire, "serve", TINY, "--port", "0", flag, wrong), flag)


def write_gguf(path, pre="llama-bpe", template=b"{{ messages }}", without="", architecture=None):
    """GGUF's model with a tokenizer; what is added before its metadata leaves the tensors where they are aligned."""
    def text(value):
        return struct.pack("<Q", len(value)) + value

    def texts(values):
        return struct.pack("<IIQ", 9, 8, len(values)) + b"".join(text(v.encode()) for v in values)

    printable = [*range(33, 127), *range(161, 173), *range(174, 256)]
    alphabet = [chr(b) for b in printable] + [chr(256 + i) for i in range(256 - len(printable))]
    pairs = {"tokenizer.ggml.model": struct.pack("<I", 8) + text(b"gpt2"), "tokenizer.ggml.pre": struct.pack("<I", 8) + text(pre.encode()),
             "tokenizer.ggml.tokens": texts([*alphabet, "ab"]), "tokenizer.ggml.merges": texts(["a b"]),
             "tokenizer.chat_template": struct.pack("<I", 8) + text(template)}
    added = b"".join(text(key.encode()) + value for key, value in pairs.items() if key != without)
    padding = text(b"padding") + struct.pack("<I", 8)
    added += padding + text(b" " * (-(len(added) + len(padding) + 8) % 32))
    model = pathlib.Path(GGUF).read_bytes()
    version, tensors, count = struct.unpack("<IQQ", model[4:24])
    count += len(pairs) - (without in pairs) + 1
    model = model[24:] if architecture is None else model[24:].replace(b"gemma3", architecture)
    pathlib.Path(path).write_bytes(b"GGUF" + struct.pack("<IQQ", version, tensors, count) + added + model)
    return path


def gguf_words(quire):
    """plan says what serve and doctor would, and nothing of a file reaches a terminal as it is."""
    with tempfile.TemporaryDirectory() as folder:
        path = f"{folder}/m.gguf"
        expect(says(quire, "plan", write_gguf(path), fails=False), "kv cache")
        for changes, *words in (({"pre": "a\x1b[31mb"}, "tokenizer.ggml.pre", '"a?[31mb" is not supported'), ({"without": "tokenizer.ggml.tokens"}, "tokenizer.ggml.tokens"),
                                ({"template": b"{% for %}"}, "chat template"), ({"template": b"\xff{{ x"}, "chat template"),
                                ({"architecture": b"g\x1b[31m"}, "general.architecture", '"g?[31m" is not supported')):
            for command in (("plan",), ("doctor", "--seconds", "0")):
                noted = command == ("plan",) and "template" in changes  # a server can be given another
                said = says(quire, *command, write_gguf(path, **changes), fails=not noted)
                expect(said, "--chat-template" if noted else "refused" if "architecture" not in changes else "", *words)
                expect(repr("\x1b" in said), "False")


def models(quire):
    with tempfile.TemporaryDirectory() as folder:
        one = f"{folder}/one"
        os.mkdir(one)
        write_gguf(f"{one}/model.GGUF")
        shutil.copy(f"{one}/model.GGUF", f"{folder}/model")
        for path in (f"{one}/model.GGUF", f"{folder}/model", one):
            expect(says(quire, "plan", path, fails=False), "kv cache")
        shutil.copy(GGUF, f"{one}/other.gguf")
        expect(says(quire, "plan", one), "holds several models; name one", "model.GGUF", "other.gguf")
        os.rename(f"{one}/other.gguf", f"{one}/mmproj-model-f16.gguf")
        expect(says(quire, "plan", one, fails=False), "kv cache")
        os.mkfifo(f"{folder}/pipe.gguf")
        for command in ("plan", "serve"):
            expect(says(quire, command, f"{folder}/pipe.gguf"), "pipe.gguf is neither a folder nor a file")
            expect(says(quire, command, GGUF, "--load-format", "safetensors"), "--load-format", "is a GGUF file")
            expect(says(quire, command, TINY, "--load-format", "gguf"), "--load-format", "is none")
            expect(says(quire, command, TINY, "--speculative-method", "eagle3", "--num-speculative-tokens", "2",
                        "--speculative-model", GGUF), "draft models are folders")


def main():
    quire = sys.argv[1]
    for test in (full_disk, full_disk_of_files, damaged_folders, numbers, names, missing_values, fields, printed_configuration, idle_flags, seconds, small_slips, lists, gguf_words, models):
        test(quire)
    print("passed")


if __name__ == "__main__":
    main()
