#include "text/tokenizer/tokenizer_config.h"

#include <algorithm>
#include <array>
#include <charconv>

#include "base/json.h"

namespace quire {
namespace {

namespace fs = std::filesystem;

constexpr std::size_t kMaxConfigBytes = 64u << 20;

// Their fast forms build the template of special tokens anew from two flags.
constexpr std::array<std::string_view, 4> kClassesWithEnds = {
    "LlamaTokenizer", "CodeLlamaTokenizer", "GemmaTokenizer", "CohereTokenizer"};

void add_special_string(std::string name, const Json& value, TokenizerConfig& config) {
  if (value.is_string()) {
    config.special_strings.try_emplace(std::move(name), value.as_string());
  } else if (value.is_object()) {  // an added token with its flags
    if (const auto content = value.find({"content"})) {
      config.special_strings.try_emplace(std::move(name), content->as_string());
    }
  }
}

// What is there already stays.
void read_special_strings(const Json& root, TokenizerConfig& config) {
  for (const auto [key, value] : root.members()) {
    if (key.ends_with("_token")) add_special_string(std::string(key), value, config);
  }
  const auto extra = root.find({"extra_special_tokens"});
  if (!extra || !extra->is_object()) return;
  for (const auto [key, value] : extra->members()) {
    add_special_string(std::string(key), value, config);
  }
}

// {"32000": {"content": "<|im_end|>", …}, …}, in the order of the numbers.
void read_added_tokens(const Json& root, TokenizerConfig& config) {
  const auto decoder = root.object({"added_tokens_decoder"});
  if (!decoder) return;
  std::vector<std::pair<TokenId, Json>> by_index;
  for (const auto [key, value] : decoder->members()) {
    TokenId index = 0;
    const auto [end, error] = std::from_chars(key.data(), key.data() + key.size(), index);
    if (error != std::errc() || end != key.data() + key.size() || index < 0) {
      value.fail("its name must be a token's id");
    }
    if (value.has({"content"})) by_index.emplace_back(index, value);
  }
  std::stable_sort(by_index.begin(), by_index.end(),
                   [](const auto& a, const auto& b) { return a.first < b.first; });
  for (const auto& [index, value] : by_index) config.added.push_back(read_added_token(value));
}

void read_ends(const Json& root, TokenizerConfig& config) {
  std::string name = root.text({"tokenizer_class"}).value_or("");
  if (name.ends_with("Fast")) name.resize(name.size() - 4);
  if (std::count(kClassesWithEnds.begin(), kClassesWithEnds.end(), name) == 0) return;
  config.ends = {.bos = root.boolean({"add_bos_token"}).value_or(true),
                 .eos = root.boolean({"add_eos_token"}).value_or(false)};
}

}  // namespace

TokenizerConfig read_tokenizer_config(const fs::path& model_dir) {
  TokenizerConfig config;
  if (const auto file = model_dir / "tokenizer_config.json"; fs::exists(file)) {
    const JsonDocument document = JsonDocument::read(file, kMaxConfigBytes);
    read_special_strings(document.object(), config);
    read_added_tokens(document.object(), config);
    read_ends(document.object(), config);
  }
  if (const auto file = model_dir / "special_tokens_map.json"; fs::exists(file)) {
    const JsonDocument document = JsonDocument::read(file, kMaxConfigBytes);
    read_special_strings(document.object(), config);
  }
  return config;
}

}  // namespace quire
