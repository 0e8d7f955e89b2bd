#include "text/tokenizer/tokenizer_config.h"

#include <algorithm>
#include <array>
#include <charconv>
#include <map>
#include <optional>
#include <utility>

#include "base/file.h"
#include "base/json.h"

namespace quire {
namespace {

namespace fs = std::filesystem;

constexpr std::size_t kMaxConfigBytes = 64u << 20;

// Their fast forms build the template of special tokens anew from two flags.
constexpr std::array<std::string_view, 4> kClassesWithEnds = {
    "LlamaTokenizer", "CodeLlamaTokenizer", "GemmaTokenizer", "CohereTokenizer"};

// Their byte-level step is built anew with tokenizer_config.json's add_prefix_space.
constexpr std::array<std::string_view, 3> kClassesWithPrefix = {"GPT2Tokenizer", "Qwen2Tokenizer",
                                                                "RobertaTokenizer"};

// These come first among the tokens that are added for their names.
constexpr std::array<std::string_view, 7> kNamesOfTokens = {
    "bos_token", "eos_token", "unk_token", "sep_token", "pad_token", "cls_token", "mask_token"};

using NamedToken = std::pair<std::string, AddedToken>;

// The tokens with a name, and special ones that have none.
struct Names {
  std::vector<NamedToken> named;
  std::vector<AddedToken> extra;

  void set(std::string_view name, const Json& value);
  void add(const Json& value);
  bool have(std::string_view content) const;
};

// A text, or an added token with its flags; empty: something else.
std::optional<AddedToken> token_of(const Json& value) {
  AddedToken token;
  if (value.is_string()) {
    token.content = value.as_string();
  } else if (value.is_object() && value.has({"content"})) {
    token = read_added_token(value);
  } else {
    return {};
  }
  token.special = true;
  return token;
}

void Names::set(std::string_view name, const Json& value) {
  const auto place =
      std::find_if(named.begin(), named.end(), [&](const auto& at) { return at.first == name; });
  auto token = token_of(value);
  if (place == named.end()) {
    if (token) named.emplace_back(name, std::move(*token));
  } else if (token) {
    place->second = std::move(*token);
  } else if (value.is_null()) {
    named.erase(place);
  }
}

void Names::add(const Json& value) {
  if (auto token = token_of(value)) extra.push_back(std::move(*token));
}

bool Names::have(std::string_view content) const {
  return std::any_of(named.begin(), named.end(),
                     [&](const auto& at) { return at.second.content == content; }) ||
         std::any_of(extra.begin(), extra.end(),
                     [&](const auto& at) { return at.content == content; });
}

// What is there already is replaced.
void read_names(const Json& root, Names& names) {
  for (const auto [key, value] : root.members()) {
    if (key.ends_with("_token")) names.set(key, value);
  }
  for (const std::string_view list : {"additional_special_tokens", "extra_special_tokens"}) {
    const auto value = root.find({list});
    if (value && value->is_array()) {
      for (const Json item : value->items()) names.add(item);
    } else if (value && value->is_object()) {
      for (const auto [key, item] : value->members()) names.set(key, item);
    }
  }
}

// {"32000": {"content": "<|im_end|>", …}, …}, in the order of the numbers.
void read_decoder(const Json& decoder, TokenizerConfig& config) {
  std::map<TokenId, AddedToken> by_index;
  for (const auto [key, value] : decoder.members()) {
    TokenId index = 0;
    const auto [end, error] = std::from_chars(key.data(), key.data() + key.size(), index);
    if (error != std::errc() || end != key.data() + key.size() || index < 0) {
      value.fail("its name must be a token's id");
    }
    if (value.has({"content"})) by_index.try_emplace(index, read_added_token(value));
  }
  for (auto& [index, token] : by_index) config.added.push_back(std::move(token));
}

// {"<|im_end|>": 32000, …}, in the order of the numbers; those with a name are special.
void read_older_list(const Json& root, const Names& names, TokenizerConfig& config) {
  std::multimap<std::int64_t, AddedToken> by_index;
  for (const auto [content, value] : root.members()) {
    const bool special = names.have(content);
    by_index.emplace(value.as_integer({0, kMaxTokenId}),
                     AddedToken{.content = std::string(content),
                                .normalized = !special,
                                .special = special,
                                .normalized_content = {}});
  }
  for (auto& [index, token] : by_index) config.added.push_back(std::move(token));
}

void add_named_token(const AddedToken& token, TokenizerConfig& config) {
  const auto known = std::find_if(config.added.begin(), config.added.end(), [&](const auto& other) {
    return other.content == token.content;
  });
  if (known != config.added.end()) {
    known->special = true;
  } else if (!token.content.empty()) {
    config.added.push_back(token);
  }
}

void add_named_tokens(Names names, TokenizerConfig& config) {
  const auto rank = [](const NamedToken& token) {
    return std::find(kNamesOfTokens.begin(), kNamesOfTokens.end(), token.first);
  };
  std::stable_sort(names.named.begin(), names.named.end(),
                   [&](const auto& a, const auto& b) { return rank(a) < rank(b); });
  for (const auto& [name, token] : names.named) {
    config.special_strings.emplace(name, token.content);
    add_named_token(token, config);
  }
  for (const AddedToken& token : names.extra) add_named_token(token, config);
}

std::optional<JsonDocument> read_file(const fs::path& file) {
  if (!fs::exists(file)) return {};
  return std::optional<JsonDocument>(std::in_place, read_text_file(file, kMaxConfigBytes), file);
}

// What a class sets itself.
void read_class(const Json& root, TokenizerConfig& config) {
  std::string name = root.text({"tokenizer_class"}).value_or("");
  if (name.ends_with("Fast")) name.resize(name.size() - 4);
  if (std::count(kClassesWithPrefix.begin(), kClassesWithPrefix.end(), name) != 0)
    config.prefix_space = root.boolean({"add_prefix_space"});
  if (std::count(kClassesWithEnds.begin(), kClassesWithEnds.end(), name) == 0) return;
  config.ends = {.bos = root.boolean({"add_bos_token"}).value_or(true),
                 .eos = root.boolean({"add_eos_token"}).value_or(false)};
}

}  // namespace

// The order of transformers' PreTrainedTokenizerBase._from_pretrained.
TokenizerConfig read_tokenizer_config(const fs::path& model_dir) {
  TokenizerConfig config;
  Names names;
  const auto document = read_file(model_dir / "tokenizer_config.json");
  std::optional<Json> decoder;
  if (document) {
    read_names(document->object(), names);
    read_class(document->object(), config);
    decoder = document->object().object({"added_tokens_decoder"});
  }
  if (decoder) {
    read_decoder(*decoder, config);
  } else {
    const auto map = read_file(model_dir / "special_tokens_map.json");
    if (map) read_names(map->object(), names);
    const auto list = read_file(model_dir / "added_tokens.json");
    if (list) read_older_list(list->object(), names, config);
  }
  add_named_tokens(std::move(names), config);
  return config;
}

}  // namespace quire
