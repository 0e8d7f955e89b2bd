#include <fmt/format.h>

#include <algorithm>

#include "base/error.h"
#include "base/json.h"
#include "gguf/archive.h"
#include "text/tokenizer/gguf_tokenizer.h"
#include "text/tokenizer/tokenizer_config.h"
#include "text/tokenizer/tokenizer_parts.h"

namespace quire {
namespace {

namespace fs = std::filesystem;

constexpr std::size_t kMaxTokenizerBytes = 512u << 20;

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

void set_ends(const TokenizerConfig::Ends& ends, Tokenizer::Parts& parts) {
  const auto token = [&](std::string_view name, bool wanted) {
    std::vector<TokenId> ids;
    const auto content = parts.special_strings.find(name);
    if (!wanted || content == parts.special_strings.end()) return ids;
    auto id = parts.added->find(content->second);
    if (!id) id = parts.model->vocab().find(content->second);
    if (id) ids.push_back(*id);
    return ids;
  };
  parts.post_processor = make_ends(token("bos_token", ends.bos), token("eos_token", ends.eos));
}

[[noreturn]] void fail_without_tokenizer(const fs::path& model_dir) {
  for (const char* other : {"tekken.json", "tokenizer.model", "vocab.json", "tiktoken.model"}) {
    if (!fs::exists(model_dir / other)) continue;
    throw Failure(ErrorCode::not_found,
                  fmt::format("{}: has {} but no tokenizer.json, which is the form that is read; "
                              "transformers' save_pretrained writes it",
                              model_dir.string(), other));
  }
  throw Failure(ErrorCode::not_found, (model_dir / "tokenizer.json").string() + ": is missing");
}

std::unique_ptr<Tokenizer::Parts> load_parts(const Json& root, const TokenizerConfig& config) {
  auto parts = std::make_unique<Tokenizer::Parts>();
  if (const auto field = root.find({"normalizer"})) parts->normalizer = load_normalizer(*field);
  const Json model = root.at("model");
  const auto pre_tokenizer = root.find({"pre_tokenizer"});
  const bool plain_bytes =
      pre_tokenizer && ends_in_byte_level(*pre_tokenizer) && takes_plain_bytes(model);
  if (pre_tokenizer) {
    parts->pre_tokenizers = load_pre_tokenizers(*pre_tokenizer, plain_bytes, config.prefix_space);
  }
  parts->model = load_model(model, plain_bytes);
  parts->added = std::make_unique<AddedTokens>(root.find({"added_tokens"}), config.added,
                                               parts->model->vocab(), parts->normalizer.get());
  if (const auto field = root.find({"post_processor"})) {
    parts->post_processor = load_post_processor(*field);
  }
  parts->special_strings = config.special_strings;
  if (config.ends) set_ends(*config.ends, *parts);
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
std::unique_ptr<Tokenizer> Tokenizer::load(const fs::path& model_dir, std::size_t cache_bytes) {
  if (gguf::is_gguf(model_dir)) {
    const gguf::Archive archive(model_dir);
    GgufTokenizer stored = read_gguf_tokenizer(archive.metadata());
    const JsonDocument document(std::move(stored.json), model_dir);
    return std::make_unique<Tokenizer>(load_parts(document.object(), stored.config), cache_bytes);
  }
  const fs::path path = model_dir / "tokenizer.json";
  if (!fs::exists(path)) fail_without_tokenizer(model_dir);
  const JsonDocument document = JsonDocument::read(path, kMaxTokenizerBytes);
  return std::make_unique<Tokenizer>(
      load_parts(document.object(), read_tokenizer_config(model_dir)), cache_bytes);
}

std::unique_ptr<Tokenizer> Tokenizer::parse(std::string_view tokenizer_json) {
  const JsonDocument document(std::string(tokenizer_json), "tokenizer.json");
  return std::make_unique<Tokenizer>(load_parts(document.object(), {}));
}

}  // namespace quire
