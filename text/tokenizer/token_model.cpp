#include "text/tokenizer/token_model.h"

#include <fmt/format.h>

#include "base/json.h"
#include "text/tokenizer/bpe.h"
#include "text/tokenizer/unigram.h"
#include "text/tokenizer/wordpiece.h"

namespace quire {
namespace {

// Older files do not say it.
std::string type_of(const Json& field) {
  if (const auto type = field.find({"type"})) return std::string(type->as_string());
  if (field.find({"merges"})) return "BPE";
  if (field.at("vocab").is_array()) return "Unigram";
  return field.find({"continuing_subword_prefix"}) ? "WordPiece" : "WordLevel";
}

}  // namespace

std::unique_ptr<TokenModel> load_model(const Json& field, bool byte_level) {
  const std::string type = type_of(field);
  if (type == "BPE") return std::make_unique<BpeModel>(field, byte_level);
  if (type == "Unigram") return std::make_unique<UnigramModel>(field);
  if (type == "WordPiece") return std::make_unique<WordPieceModel>(field);
  if (type == "WordLevel") return std::make_unique<WordLevelModel>(field);
  field.at("type").fail(fmt::format("\"{}\" is not a model that is known", type));
}

bool takes_plain_bytes(const Json& field) {
  return type_of(field) == "BPE" && !field.boolean({"byte_fallback"}).value_or(false) &&
         field.text({"continuing_subword_prefix"}).value_or("").empty() &&
         field.text({"end_of_word_suffix"}).value_or("").empty();
}

}  // namespace quire
