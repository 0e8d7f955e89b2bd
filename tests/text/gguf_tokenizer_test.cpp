// tests/data/gguf/tokenizers: a SentencePiece BPE model with what SentencePiece itself answers. A
// byte-level one is made here of a golden tokenizer.json.

#include <catch2/catch.hpp>

#include <filesystem>
#include <fstream>
#include <functional>

#include "base/error.h"
#include "base/json.h"
#include "tests/support/gguf_bytes.h"
#include "tests/support/temp_path.h"
#include "text/template/chat_template.h"
#include "text/tokenizer/tokenizer.h"

namespace quire {
namespace {

namespace fs = std::filesystem;

const fs::path kSentencePiece = "tests/data/gguf/tokenizers/sentencepiece.gguf";

TEST_CASE("a SentencePiece vocabulary encodes as SentencePiece does", "[tokenizer][gguf]") {
  const auto tokenizer = Tokenizer::load(kSentencePiece);
  std::ifstream lines("tests/data/gguf/tokenizers/sentencepiece.jsonl");
  int cases = 0;
  for (std::string line; std::getline(lines, line); ++cases) {
    const JsonDocument document(line, "case");
    const Json fields = document.object();
    const std::string text(fields.at("text").as_string());
    INFO(text);
    const auto ids = tokenizer->encode(text, false);
    CHECK(ids == fields.integers({"ids"}, {0, 1 << 20}));
    CHECK(tokenizer->decode(ids, true) == fields.at("decoded").as_string());
  }
  CHECK(cases > 300);
}

TEST_CASE("a GGUF vocabulary brings its special tokens and chat template", "[tokenizer][gguf]") {
  const auto tokenizer = Tokenizer::load(kSentencePiece);
  const auto ids = tokenizer->encode("a<|user|>", true);
  REQUIRE(ids.size() == 3);
  CHECK(ids[0] == tokenizer->token_to_id("<s>"));
  CHECK(ids[2] == tokenizer->token_to_id("<|user|>"));
  CHECK(tokenizer->special_strings().at("eos_token") == "</s>");
  CHECK(tokenizer->is_special(ids[0]));
  CHECK(!tokenizer->is_special(ids[2]));
  ChatTemplateInput input;
  input.messages = jinja::parse_json(R"([{"role": "user", "content": "hi"}])");
  CHECK(ChatTemplate::load(kSentencePiece).render(input).text == "<s>hi</s>");
}

// The golden tekken tokenizer as a converter would write it.
fs::path write_byte_level(
    const fs::path& folder, const std::string& pre,
    const std::function<void(GgufBytes&)>& add = [](GgufBytes&) {}) {
  const JsonDocument document =
      JsonDocument::read("tests/data/golden/tokenizers/tekken/tokenizer.json", 64u << 20);
  const Json model = document.object().at("model");
  std::vector<std::string> tokens, merges;
  std::vector<std::int32_t> types;
  const auto put = [&](std::int64_t id, std::string_view token, int type) {
    for (auto i = static_cast<std::int64_t>(tokens.size()); i <= id; ++i) {
      tokens.push_back("[PAD" + std::to_string(i) + "]");
      types.push_back(5);
    }
    tokens[static_cast<std::size_t>(id)] = token;
    types[static_cast<std::size_t>(id)] = type;
  };
  for (const auto [token, id] : model.at("vocab").members()) {
    put(id.as_integer({0, 1 << 24}), token, 1);
  }
  for (const Json added : document.object().at("added_tokens").items()) {
    put(added.at("id").as_integer({0, 1 << 24}), added.need_text("content"),
        added.at("special").as_boolean() ? 3 : 4);
  }
  for (const Json merge : model.at("merges").items()) {
    merges.push_back(merge.is_string() ? std::string(merge.as_string())
                                       : std::string(merge.items()[0].as_string()) + " " +
                                             std::string(merge.items()[1].as_string()));
  }
  GgufBytes file;
  file.text("general.architecture", "llama").text("tokenizer.ggml.model", "gpt2");
  file.text("tokenizer.ggml.pre", pre).texts("tokenizer.ggml.tokens", tokens);
  file.i32s("tokenizer.ggml.token_type", types).texts("tokenizer.ggml.merges", merges);
  file.u32("tokenizer.ggml.bos_token_id", 1).flag("tokenizer.ggml.add_bos_token", true);
  add(file);
  fs::create_directories(folder);
  std::ofstream(folder / "tekken.gguf", std::ios::binary) << file.with_data(0);
  return folder / "tekken.gguf";
}

TEST_CASE("a byte-level vocabulary encodes as its tokenizer.json does", "[tokenizer][gguf]") {
  const fs::path folder = temp_path("quire_gguf_tokenizer");
  const auto tokenizer = Tokenizer::load(write_byte_level(folder, "tekken"));
  const auto original = Tokenizer::load("tests/data/golden/tokenizers/tekken");
  std::ifstream lines("tests/data/golden/tokenizers/tekken/cases.jsonl");
  for (std::string line; std::getline(lines, line);) {
    const JsonDocument document(line, "case");
    const auto text = document.object().find({"text"});
    if (!text) continue;
    INFO(text->as_string());
    const auto ids = tokenizer->encode(text->as_string(), true);
    CHECK(ids == original->encode(text->as_string(), true));
    CHECK(tokenizer->decode(ids, false) == original->decode(ids, false));
  }
  CHECK_THROWS_WITH(Tokenizer::load(write_byte_level(folder, "unheard-of")),
                    Catch::Contains("tokenizer.ggml.pre") &&
                        Catch::Contains("\"unheard-of\" is not supported (llama-bpe"));
  fs::remove_all(folder);
}

TEST_CASE("an id that is no token's is refused where it is needed, else left out",
          "[tokenizer][gguf]") {
  const fs::path folder = temp_path("quire_gguf_ids");
  const auto odd = [](GgufBytes& file) {
    file.u32("tokenizer.ggml.padding_token_id", 1 << 30).u32("tokenizer.ggml.eos_token_id", ~0u);
  };
  const auto strings = Tokenizer::load(write_byte_level(folder, "tekken", odd))->special_strings();
  CHECK(strings.contains("bos_token"));
  CHECK_FALSE(strings.contains("pad_token"));
  CHECK_FALSE(strings.contains("eos_token"));
  const auto needed = [&](GgufBytes& file) {
    odd(file);
    file.flag("tokenizer.ggml.add_eos_token", true);
  };
  CHECK_THROWS_WITH(Tokenizer::load(write_byte_level(folder, "tekken", needed)),
                    Catch::Contains("tokenizer.ggml.eos_token_id") &&
                        Catch::Contains("tokenizer.ggml.add_eos_token needs it"));
  fs::remove_all(folder);
}

}  // namespace
}  // namespace quire
