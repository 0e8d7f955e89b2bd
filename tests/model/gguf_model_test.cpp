// Golden models converted to GGUF (tests/data/gguf/README.md) against the reference of what they
// were converted from; a file of random blocks against itself as plain numbers.

#include <catch2/catch.hpp>

#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <random>
#include <string>
#include <vector>

#include "app/check/golden.h"
#include "backend/measuring_device.h"
#include "cpu/cpu_backend.h"
#include "model/gguf/tensors.h"
#include "model/registry.h"
#include "model/weights.h"
#include "tests/support/direct_runner.h"
#include "tests/support/gguf_bytes.h"
#include "tests/support/temp_path.h"

namespace quire {
namespace {

namespace fs = std::filesystem;

// Or a folder with more of them.
fs::path gguf_models() {
  const char* full = std::getenv("QUIRE_GGUF_DIR");
  return full != nullptr ? fs::path(full) : fs::path("tests/data/gguf/models");
}

TEST_CASE("models read from GGUF answer as their checkpoints do", "[model][golden][gguf]") {
  int models = 0;
  for (const auto& entry : fs::directory_iterator(gguf_models())) {
    INFO(entry.path().string());
    const fs::path file = entry.path() / "model.gguf";
    const Golden golden = read_golden(entry.path());
    const ModelConfig config = read_model_config(file);
    const auto device = make_cpu_device();
    const auto ops = make_cpu_ops({.threads = 2});
    const auto model =
        load_model(config, file, *device, ops->traits(), {.dtype = DType::f32});
    CHECK(model->notes().empty());
    DirectRunner runner(*model, *device, *ops, {});
    for (const GoldenCase& c : golden.cases) {
      const int request = runner.add_request(static_cast<int>(c.prompt.size()));
      std::vector<float> logits = runner.step({{request, c.prompt}});
      CHECK(distance(logits, c.logits, golden.vocab_size).max_abs <= golden.atol);
      std::vector<TokenId> tokens;
      while (tokens.size() < c.greedy.size()) {
        tokens.push_back(
            argmax(std::span(logits).last(static_cast<std::size_t>(golden.vocab_size))));
        logits = runner.step({{request, {tokens.back()}}});
      }
      CHECK(tokens == c.greedy);
    }
    ++models;
  }
  CHECK(models >= 3);
}

struct Folder {
  Folder() { fs::create_directories(path); }
  ~Folder() { fs::remove_all(path); }
  fs::path write(const GgufBytes& file, std::size_t data_bytes) const {
    std::ofstream(path / "m.gguf", std::ios::binary) << file.with_data(data_bytes);
    return path / "m.gguf";
  }
  const fs::path path = temp_path("quire_gguf_model");
};

GgufBytes tiny_llama() {
  GgufBytes file;
  file.text("general.architecture", "llama").u32("llama.block_count", 1);
  file.u32("llama.context_length", 128).u32("llama.embedding_length", 32);
  file.u32("llama.feed_forward_length", 64).u32("llama.attention.head_count", 2);
  file.f32("llama.attention.layer_norm_rms_epsilon", 1e-5f);
  return file.tensor("token_embd.weight", {32, 8}, 2, 0);
}

TEST_CASE("metadata become a configuration; what is missing or odd is refused by key",
          "[model][gguf]") {
  const Folder folder;
  const ModelConfig config = read_model_config(folder.write(tiny_llama(), 144));
  CHECK(config.architecture == "LlamaForCausalLM");
  CHECK(config.quant.method == "gguf");
  CHECK(config.vocab_size == 8);
  CHECK(config.head_dim == 16);
  CHECK(config.num_kv_heads == 2);
  CHECK(config.rms_norm_eps == 1e-5);
  CHECK(config.tie_word_embeddings);
  CHECK(config.dtype == DType::bf16);

  const auto refused = [&](const GgufBytes& file, const std::string& why) {
    CHECK_THROWS_WITH(read_model_config(folder.write(file, 144)),
                      Catch::Contains("m.gguf: metadata \"") && Catch::Contains(why));
  };
  GgufBytes other;
  other.text("general.architecture", "mamba");
  refused(other, "\"mamba\" is not supported (llama, qwen2");
  GgufBytes bare;
  bare.text("general.architecture", "qwen3").tensor("token_embd.weight", {32, 8}, 2, 0);
  refused(bare, "qwen3.embedding_length\": is missing");
  refused(tiny_llama().text("llama.rope.scaling.type", "spiral"), "\"spiral\" is not supported");
  refused(tiny_llama().i32s("llama.attention.head_count_kv", {2, 1}), "differs between layers");
  refused(tiny_llama().flag("llama.attention.causal", false), "attention.causal");
}

// What is said of tensors of a whole model of one layer, with `more` of one row.
std::vector<std::string> notes_of(const Folder& folder, const std::vector<std::string>& more,
                                  bool is_measured = true) {
  GgufBytes file = tiny_llama();
  std::uint64_t at = 160;  // behind the embedding
  const auto add = [&](const std::string& name, const std::vector<std::uint64_t>& extents) {
    file.tensor(name, extents, 0, at);
    at += extents[0] * (extents.size() > 1 ? extents[1] : 1) * sizeof(float);
  };
  for (const char* name : {"output_norm", "blk.0.attn_norm", "blk.0.ffn_norm"})
    add(name + std::string(".weight"), {32});
  for (const char* name : {"attn_q", "attn_k", "attn_v", "attn_output"})
    add("blk.0." + std::string(name) + ".weight", {32, 32});
  for (const char* name : {"ffn_gate", "ffn_up"})
    add("blk.0." + std::string(name) + ".weight", {32, 64});
  add("blk.0.ffn_down.weight", {64, 32});
  for (const std::string& name : more) add(name, {name == "rope_freqs.weight" ? 8u : 32u});
  const fs::path path = folder.write(file, at);
  const auto ops = make_cpu_ops({.threads = 1});
  MeasuringDevice nowhere(true);
  const auto device = make_cpu_device();
  auto notes = load_model(read_model_config(path), path, is_measured ? nowhere : *device,
                          ops->traits(), {.measure = is_measured})
                   ->notes();
  std::erase_if(notes, [](const auto& note) { return note.find("does not read") == note.npos; });
  return notes;
}

TEST_CASE("tensors of a file that the model does not read are found", "[model][gguf]") {
  const Folder folder;
  for (const bool is_measured : {true, false}) {
    CHECK(notes_of(folder, {}, is_measured).empty());
    CHECK(notes_of(folder, {"rope_freqs.weight"}, is_measured).empty());
    CHECK(notes_of(folder, {"v.blk.0.attn_q.weight", "v.blk.30.ln1.bias", "mm.0.weight"}, is_measured)
              .empty());  // of pictures
    CHECK_THAT(notes_of(folder, {"a\n\x1b[31mb.weight"}, is_measured).front(),
               Catch::EndsWith("a??[31mb.weight"));
    const auto left = notes_of(folder, {"foo.weight", "blk.0.attn_output.bias"}, is_measured);
    REQUIRE(left.size() == 1);
    CHECK(left.front() == "the checkpoint has 2 tensors that the model does not read: foo.weight, "
                          "blk.0.attn_output.bias");
    CHECK_THROWS_WITH(notes_of(folder, {"blk.1.attn_q.weight"}, is_measured),
                      Catch::Contains("tensor \"blk.1.attn_q.weight\" is of layer 1, and "
                                      "block_count of ") &&
                          Catch::Contains("m.gguf is 1"));
    CHECK_THROWS_WITH(notes_of(folder, {"blk.9.foo.bias"}, is_measured),
                      Catch::Contains("is of layer 9"));
    CHECK_THROWS_WITH(notes_of(folder, {"blk.0.attn_sinks.weight"}, is_measured),
                      Catch::Contains("is a weight that layers of LlamaForCausalLM as the file's "
                                      "metadata describe them do not have"));
  }
}

TEST_CASE("a tensor that a file lacks is called by the file's name for it", "[model][gguf]") {
  const Folder folder;
  const fs::path file = folder.write(tiny_llama(), 144);
  const auto ops = make_cpu_ops({.threads = 1});
  MeasuringDevice device(true);
  CHECK_THROWS_WITH(
      load_model(read_model_config(file), file, device, ops->traits(), {.measure = true}),
      Catch::Contains("m.gguf: tensor \"output_norm.weight\" is missing"));
  CHECK(stored_name(file, "model.layers.12.self_attn.q_proj.bias") == "blk.12.attn_q.bias");
  CHECK(stored_name(file, "model.layers.0.mlp.experts.7.up_proj.weight") ==
        "blk.0.ffn_up_exps.weight");
  for (const char* odd : {"x", "model.layers.", "model.layers.1", "experts."})
    CHECK(stored_name(file, odd) == odd);
}

// llama.cpp's load_hparams: without a type a factor is linear, and once had another name.
TEST_CASE("a factor of the ropes counts by either name, with a type or without", "[model][gguf]") {
  const Folder folder;
  const auto rope = [&](const GgufBytes& file) {
    return read_model_config(folder.write(file, 144)).rope;
  };
  const std::string factor = "llama.rope.scaling.factor", older = "llama.rope.scale_linear";
  for (const GgufBytes& file :
       {tiny_llama().f32(factor, 2), tiny_llama().f32(older, 2),
        tiny_llama().f32(older, 3).f32(factor, 2),
        tiny_llama().text("llama.rope.scaling.type", "linear").f32(older, 2)}) {
    CHECK(rope(file).kind == RopeKind::linear);
    CHECK(rope(file).factor == 2);
  }
  for (const GgufBytes& file :
       {tiny_llama(), tiny_llama().f32(factor, 0),
        tiny_llama().text("llama.rope.scaling.type", "none").f32(factor, 2)}) {
    CHECK(rope(file).kind == RopeKind::standard);
  }
}

std::vector<std::int32_t> ends_of(const std::vector<std::string>& tokens,
                                  const std::vector<std::int32_t>& types, std::uint32_t eos) {
  const Folder folder;
  GgufBytes file = tiny_llama();
  file.texts("tokenizer.ggml.tokens", tokens).i32s("tokenizer.ggml.token_type", types);
  file.u32("tokenizer.ggml.eos_token_id", eos);
  return read_model_config(folder.write(file, 144)).eos_token_ids;
}

TEST_CASE("turns end at the tokens that the metadata name and at those known by text",
          "[model][gguf]") {
  using Ids = std::vector<std::int32_t>;
  CHECK(ends_of({"<|endoftext|>", "a", "<|im_end|>"}, {3, 1, 3}, 0) == Ids{0, 2});
  CHECK(ends_of({"a", "<|eot_id|>", "<|end_of_text|>"}, {1, 3, 4}, 2) == Ids{2, 1});
  CHECK(ends_of({"<eos>", "<end_of_turn>", "</s>"}, {3, 3, 4}, 0) == Ids{0, 1});
  CHECK(ends_of({"b", "<|im_end|>", "</s>"}, {1, 1, 3}, 0) == Ids{0, 2});  // text is no mark
  // gpt-oss: a message ends with <|end|>, the turn goes on.
  CHECK(ends_of({"<|return|>", "<|end|>", "<|call|>"}, {3, 3, 3}, 0) == Ids{0, 2});
  CHECK(ends_of({"<|endoftext|>", "<|end|>", "a"}, {3, 3, 1}, 0) == Ids{0, 1});
  CHECK(ends_of({"<|im_end|>", "a"}, {3, 1}, 4000000000) == Ids{0});  // no token's id
}

TEST_CASE("mutated files give a model's sizes or are refused", "[model][gguf][fuzz]") {
  const Folder folder;
  std::ifstream in("tests/data/gguf/models/llama-rope-llama3/model.gguf", std::ios::binary);
  const std::string seed(std::istreambuf_iterator<char>(in), {});
  std::mt19937 random(19);
  int read = 0;
  for (int round = 0; round < 400; ++round) {
    std::string bytes = seed;
    for (int edits = 1 + static_cast<int>(random() % 3); edits > 0; --edits) {
      bytes[random() % 3000] = static_cast<char>(random() % 3 == 0 ? 0xff : random());
    }
    const fs::path file = folder.path / "m.gguf";
    std::ofstream(file, std::ios::binary) << bytes;
    try {
      const ModelConfig config = read_model_config(file);
      MeasuringDevice device(true);
      const auto model =
          load_model(config, file, device, cpu_traits(), {.max_model_len = 64, .measure = true});
      CHECK(model->weight_bytes() > 0);
      ++read;
    } catch (const Failure&) {
    }
  }
  CHECK(read > 0);
}

TEST_CASE("tensors of a type that nothing reads are refused where they are needed",
          "[model][gguf]") {
  const Folder folder;
  GgufBytes file;
  file.text("general.architecture", "llama");
  file.u32("llama.attention.head_count", 2);
  file.tensor("token_embd.weight", {256, 1}, 16, 0);
  file.tensor("blk.0.attn_q.weight", {32, 4}, 2, 96);
  const fs::path path = folder.write(file, 96 + 72);
  const auto device = make_cpu_device();
  Weights weights(path, LoadFormat::safetensors, 0, DType::f32, *device);
  CHECK_THROWS_WITH(weights.load("model.embed_tokens.weight", {1, 256}),
                    Catch::Contains("is stored as IQ2_XXS, which is not supported (F32, F16"));
  CHECK_THROWS_WITH(weights.load("model.embed_tokens.weight", {2, 128}),
                    Catch::Contains("has shape [1, 256], expected [2, 128]"));
  CHECK(weights.load("model.layers.0.self_attn.q_proj.weight", {4, 32}).numel() == 128);
  CHECK_THROWS_WITH(weights.load("model.norm.weight", {32}), Catch::Contains("is missing"));
}

}  // namespace
}  // namespace quire
