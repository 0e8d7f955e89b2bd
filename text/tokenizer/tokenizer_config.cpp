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

// Names whose tokens are tokens, whatever tokenizer.json says; others only serve chat templates.
constexpr std::array<std::string_view, 7> kNamesOfTokens = {
    "bos_token", "eos_token", "unk_token", "sep_token", "pad_token", "cls_token", "mask_token"};

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

void add_named_token(const Json& value, TokenizerConfig& config) {
  AddedToken token;
  if (value.is_string()) {
    token.content = value.as_string();
  } else if (value.is_object() && value.has({"content"})) {
    token = read_added_token(value);
  }
  token.special = true;
  const auto known = std::find_if(config.added.begin(), config.added.end(), [&](const auto& other) {
    return other.content == token.content;
  });
  if (known != config.added.end()) {
    known->special = true;
  } else if (!token.content.empty()) {
    config.added.push_back(std::move(token));
  }
}

void add_named_tokens(const Json& root, TokenizerConfig& config) {
  for (const std::string_view name : kNamesOfTokens) {
    if (const auto value = root.find({name})) add_named_token(*value, config);
  }
  for (const std::string_view name : {"additional_special_tokens", "extra_special_tokens"}) {
    const auto value = root.find({name});
    if (value && value->is_array()) {
      for (const Json item : value->items()) add_named_token(item, config);
    } else if (value && value->is_object()) {
      for (const auto [key, item] : value->members()) add_named_token(item, config);
    }
  }
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
    add_named_tokens(document.object(), config);
    read_ends(document.object(), config);
  }
  if (const auto file = model_dir / "special_tokens_map.json"; fs::exists(file)) {
    const JsonDocument document = JsonDocument::read(file, kMaxConfigBytes);
    read_special_strings(document.object(), config);
    if (config.added.empty()) add_named_tokens(document.object(), config);
  }
  return config;
}

}  // namespace quire
