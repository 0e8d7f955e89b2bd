#include <fmt/format.h>
#include <simdjson.h>

#include <algorithm>

#include "base/error.h"
#include "text/tokenizer/json_field.h"
#include "text/tokenizer/tokenizer_parts.h"

namespace quire {
namespace {

namespace fs = std::filesystem;

// A parsed text; fields of it are valid as long as it lives. Errors call it by its name.
class JsonText {
 public:
  JsonText(std::string name, const simdjson::padded_string& text) : name_(std::move(name)) {
    if (const auto error = parser_.parse(text).get(root_)) {
      throw Failure(ErrorCode::invalid_argument,
                    fmt::format("{}: {}", name_, simdjson::error_message(error)));
    }
  }
  JsonField root() const { return {name_, "", root_}; }

 private:
  std::string name_;
  simdjson::dom::parser parser_;
  simdjson::dom::element root_;
};

simdjson::padded_string read_file(const fs::path& path) {
  simdjson::padded_string text;
  if (const auto error = simdjson::padded_string::load(path.string()).get(text)) {
    throw Failure(ErrorCode::not_found,
                  fmt::format("{}: {}", path.string(), simdjson::error_message(error)));
  }
  return text;
}

void add_special_string(std::string name, const JsonField& value,
                        std::map<std::string, std::string, std::less<>>& strings) {
  if (value.is_string()) {
    strings.try_emplace(std::move(name), value.string());
  } else if (value.is_object()) {  // an added token with its flags
    if (const auto content = value.find("content")) {
      strings.try_emplace(std::move(name), content->string());
    }
  }
}

// "bos_token" and the like. What is there already stays.
void read_special_strings(const fs::path& path,
                          std::map<std::string, std::string, std::less<>>& strings) {
  if (!fs::exists(path)) return;
  const JsonText text(path.string(), read_file(path));
  const JsonField root = text.root();
  for (const auto [key, value] : root.object()) {
    if (key.ends_with("_token"))
      add_special_string(std::string(key), root.child(key, value), strings);
  }
  const auto extra = root.find("extra_special_tokens");
  if (!extra || !extra->is_object()) return;
  for (const auto [key, value] : extra->object()) {
    add_special_string(std::string(key), extra->child(key, value), strings);
  }
}

bool has_decoder(const JsonField& decoder, std::string_view type) {
  if (decoder.required_text("type") == type) return true;
  const auto inner = decoder.find("decoders");
  if (!inner) return false;
  const auto items = inner->items();
  return std::any_of(items.begin(), items.end(),
                     [&](const JsonField& item) { return has_decoder(item, type); });
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

std::unique_ptr<Tokenizer::Parts> load_parts(const JsonField& root) {
  auto parts = std::make_unique<Tokenizer::Parts>();
  if (const auto field = root.find("normalizer")) parts->normalizer = load_normalizer(*field);
  const JsonField model = root.at("model");
  const auto pre_tokenizer = root.find("pre_tokenizer");
  const bool plain_bytes =
      pre_tokenizer && ends_in_byte_level(*pre_tokenizer) && takes_plain_bytes(model);
  if (pre_tokenizer) parts->pre_tokenizers = load_pre_tokenizers(*pre_tokenizer, plain_bytes);
  parts->model = load_model(model, plain_bytes);
  parts->added = std::make_unique<AddedTokens>(root.find("added_tokens"), parts->model->vocab(),
                                               parts->normalizer.get());
  if (const auto field = root.find("post_processor")) {
    parts->post_processor = load_post_processor(*field);
  }
  if (const auto field = root.find("decoder")) {
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
  const JsonText text(path.string(), read_file(path));
  auto parts = load_parts(text.root());
  read_special_strings(model_dir / "tokenizer_config.json", parts->special_strings);
  read_special_strings(model_dir / "special_tokens_map.json", parts->special_strings);
  return std::make_unique<Tokenizer>(std::move(parts));
}

std::unique_ptr<Tokenizer> Tokenizer::parse(std::string_view tokenizer_json) {
  const JsonText text("tokenizer.json", simdjson::padded_string(tokenizer_json));
  return std::make_unique<Tokenizer>(load_parts(text.root()));
}

}  // namespace quire
