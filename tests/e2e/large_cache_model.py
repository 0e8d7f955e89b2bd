"""A model of random weights that is quick to compute, with the cache of an 8B one per layer: 8 key heads of 128, bfloat16, 8 layers."""
import json
import pathlib
import shutil

CONFIG = {"architectures": ["LlamaForCausalLM"], "vocab_size": 1536, "hidden_size": 256, "intermediate_size": 256, "num_hidden_layers": 8,
          "num_attention_heads": 8, "num_key_value_heads": 8, "head_dim": 128, "rms_norm_eps": 1e-5, "max_position_embeddings": 4096,
          "rope_theta": 10000.0, "torch_dtype": "bfloat16", "tie_word_embeddings": True}
BYTES_PER_TOKEN = 2 * 8 * 128 * 2 * CONFIG["num_hidden_layers"]
FLAGS = ("--device", "cpu", "--load-format", "dummy", "--cpu-threads", "1", "--kv-cache-memory-bytes", "2GiB")


def write_model(folder):
    model = pathlib.Path(folder) / "model"
    model.mkdir()
    (model / "config.json").write_text(json.dumps(CONFIG))
    for file in pathlib.Path("models/quire-tiny").glob("*token*"):
        shutil.copy(file, model)
    return model
