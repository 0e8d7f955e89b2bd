#include <fmt/format.h>

#include <algorithm>

#include "base/error.h"
#include "base/json.h"
#include "text/tokenizer/tokenizer_parts.h"

namespace quire {
namespace {

namespace fs = std::filesystem;

constexpr std::size_t kMaxTokenizerBytes = 512u << 20;
constexpr std::size_t kMaxConfigBytes = 64u << 20;

void add_special_string(std::string name, const Json& value,
                        std::map<std::string, std::string, std::less<>>& strings) {
  if (value.is_string()) {
    strings.try_emplace(std::move(name), value.as_string());
  } else if (value.is_object()) {  // an added token with its flags
    if (const auto content = value.find({"content"})) {
      strings.try_emplace(std::move(name), content->as_string());
    }
  }
}

// "bos_token" and the like. What is there already stays.
void read_special_strings(const fs::path& path,
                          std::map<std::string, std::string, std::less<>>& strings) {
  if (!fs::exists(path)) return;
  const JsonDocument document = JsonDocument::read(path, kMaxConfigBytes);
  const Json root = document.object();
  for (const auto [key, value] : root.members()) {
    if (key.ends_with("_token")) add_special_string(std::string(key), value, strings);
  }
  const auto extra = root.find({"extra_special_tokens"});
  if (!extra || !extra->is_object()) return;
  for (const auto [key, value] : extra->members()) {
    add_special_string(std::string(key), value, strings);
  }
}

bool has_decoder(const Json& decoder, std::string_view type) {
  if (decoder.need_text("type") == type) return true;
  const auto inner = decoder.find({"decoders"});
  if (!inner) return false;
  for (const Json item : inner->items()) {
    if (has_decoder(item, type)) return true;
  }
  return false;
}

void list_pieces(Tokenizer::Parts& parts) {
  const Vocab& vocab = parts.model->vocab();
  parts.pieces.resize(
      static_cast<std::size_t>(std::max(vocab.id_limit(), parts.added->id_limit())));
  for (TokenId id = 0; id < static_cast<TokenId>(parts.pieces.size()); ++id) {
    auto& piece = parts.pieces[static_cast<std::size_t>(id)];
    if (const AddedToken* added = parts.added->find(id)) {
      piece = {added->normalized_content, parts.added->is_special(added->normalized_content)};
    } else if (vocab.has(id)) {
      piece = {vocab.token(id), parts.added->is_special(vocab.token(id))};
    }
  }
  for (const std::string_view letter : {"a", "e", "▁a", "▁e"}) {
    if (!parts.ordinary) parts.ordinary = vocab.find(letter);
  }
}

std::unique_ptr<Tokenizer::Parts> load_parts(const Json& root) {
  auto parts = std::make_unique<Tokenizer::Parts>();
  if (const auto field = root.find({"normalizer"})) parts->normalizer = load_normalizer(*field);
  const Json model = root.at("model");
  const auto pre_tokenizer = root.find({"pre_tokenizer"});
  const bool plain_bytes =
      pre_tokenizer && ends_in_byte_level(*pre_tokenizer) && takes_plain_bytes(model);
  if (pre_tokenizer) parts->pre_tokenizers = load_pre_tokenizers(*pre_tokenizer, plain_bytes);
  parts->model = load_model(model, plain_bytes);
  parts->added = std::make_unique<AddedTokens>(root.find({"added_tokens"}), parts->model->vocab(),
                                               parts->normalizer.get());
  if (const auto field = root.find({"post_processor"})) {
    parts->post_processor = load_post_processor(*field);
  }
  if (const auto field = root.find({"decoder"})) {
    parts->decoders = load_decoders(*field);
    parts->byte_level = has_decoder(*field, "ByteLevel");
    parts->byte_fallback = has_decoder(*field, "ByteFallback");
  } else {
    parts->decoders = default_decoders();
  }
  list_pieces(*parts);
  return parts;
}

}  // namespace

// "truncation" and "padding" of the file are for training scripts; a server has limits of its own.
std::unique_ptr<Tokenizer> Tokenizer::load(const fs::path& model_dir) {
  const fs::path path = model_dir / "tokenizer.json";
  const JsonDocument document = JsonDocument::read(path, kMaxTokenizerBytes);
  auto parts = load_parts(document.object());
  read_special_strings(model_dir / "tokenizer_config.json", parts->special_strings);
  read_special_strings(model_dir / "special_tokens_map.json", parts->special_strings);
  return std::make_unique<Tokenizer>(std::move(parts));
}

std::unique_ptr<Tokenizer> Tokenizer::parse(std::string_view tokenizer_json) {
  const JsonDocument document(std::string(tokenizer_json), "tokenizer.json");
  return std::make_unique<Tokenizer>(load_parts(document.object()));
}

}  // namespace quire
