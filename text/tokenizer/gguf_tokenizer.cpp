#include "text/tokenizer/gguf_tokenizer.h"

#include <algorithm>

#include "base/json_text.h"
#include "base/utf8.h"
#include "gguf/printable.h"
#include "gguf/special_strings.h"
#include "text/tokenizer/gguf_words.h"

namespace quire {

namespace {

// tokenizer.ggml.token_type
enum class TokenType : std::uint8_t {
  normal = 1,
  unknown = 2,
  control = 3,
  user_defined = 4,
  unused = 5,
  byte = 6,
};

constexpr const char* kTokens = "tokenizer.ggml.tokens";

// What the converter puts where the vocabulary has holes.
bool is_filler(std::string_view token, std::size_t id) {
  return token == "[PAD" + std::to_string(id) + "]";
}

bool is_utf8(std::string_view text) {
  const char *at = text.data(), *const end = at + text.size();
  while (at < end) {
    const Utf8Step step = utf8_step(at, end);
    if (step.kind != Utf8Step::valid) return false;
    at += step.length;
  }
  return true;
}

std::string pair_of(std::string_view name, std::string_view json) {
  std::string text;
  append_json_text(text, name);
  return text + ":" + std::string(json);
}

class Converter {
 public:
  explicit Converter(const gguf::Metadata& metadata)
      : metadata_(metadata), tokens_(metadata.texts(kTokens)) {
    if (tokens_.empty()) metadata_.fail(kTokens, "is missing");
    const auto types = metadata_.integers("tokenizer.ggml.token_type", {0, 16});
    if (!types.empty() && types.size() != tokens_.size()) {
      metadata_.fail("tokenizer.ggml.token_type", "has " + std::to_string(types.size()) +
                                                      " items for " +
                                                      std::to_string(tokens_.size()) + " tokens");
    }
    for (const std::int64_t type : types) types_.push_back(static_cast<TokenType>(type));
    types_.resize(tokens_.size(), TokenType::normal);
    for (std::size_t id = 0; id < tokens_.size(); ++id) {
      if (!is_utf8(tokens_[id])) {
        metadata_.fail(kTokens, "token " + std::to_string(id) + " is not UTF-8");
      }
    }
  }

  GgufTokenizer convert() {
    const std::string_view model = metadata_.need_text("tokenizer.ggml.model");
    GgufTokenizer out;
    if (model == "gpt2") {
      out.json = byte_level_json();
    } else if (model == "llama") {
      out.json = sentencepiece_json();
    } else {
      metadata_.fail("tokenizer.ggml.model",
                     gguf::printable(model) + " is not supported (gpt2, llama)",
                     ErrorCode::unsupported);
    }
    out.config.special_strings = gguf::special_strings(metadata_);
    out.config.ends = {
        .bos = metadata_.boolean("tokenizer.ggml.add_bos_token").value_or(adds_bos_),
        .eos = metadata_.boolean("tokenizer.ggml.add_eos_token").value_or(false)};
    add_tokens(out.config);
    return out;
  }

 private:
  bool in_vocabulary(std::size_t id) const {
    return types_[id] != TokenType::unused || !is_filler(tokens_[id], id);
  }

  std::string vocabulary() const {
    std::string json = "{";
    for (std::size_t id = 0; id < tokens_.size(); ++id) {
      if (!in_vocabulary(id)) continue;
      if (json.size() > 1) json += ',';
      append_json_text(json, tokens_[id]);
      json += ':' + std::to_string(id);
    }
    return json + "}";
  }

  std::string byte_level_json() {
    const GgufWords& words = gguf_words(metadata_);
    adds_bos_ = words.adds_bos;
    std::string merges = "[";
    for (const std::string_view merge : metadata_.texts("tokenizer.ggml.merges")) {
      if (merges.size() > 1) merges += ',';
      append_json_text(merges, merge);
    }
    if (merges.size() == 1) metadata_.fail("tokenizer.ggml.merges", "is missing");
    const std::string byte_level =
        R"({"type":"ByteLevel","add_prefix_space":false,"trim_offsets":false,"use_regex":false})";
    return "{" + pair_of("normalizer", words.nfc ? R"({"type":"NFC"})" : "null") + "," +
           pair_of("pre_tokenizer", words.pre_tokenizer_json()) + "," +
           pair_of("decoder", byte_level) + "," +
           pair_of("model", std::string(R"({"type":"BPE","ignore_merges":)") +
                                (words.ignore_merges ? "true" : "false") + "," +
                                pair_of("vocab", vocabulary()) + "," +
                                pair_of("merges", merges + "]") + "}") +
           "}";
  }

  // SentencePiece's BPE as Hugging Face writes it: every way to make a piece of two is a merge, the
  // best-scored piece first.
  std::string sentencepiece_json() {
    adds_bos_ = true;
    const bool prefix = metadata_.boolean("tokenizer.ggml.add_space_prefix").value_or(true);
    if (metadata_.boolean("tokenizer.ggml.remove_extra_whitespaces").value_or(false)) {
      metadata_.fail("tokenizer.ggml.remove_extra_whitespaces", "true is not supported",
                     ErrorCode::unsupported);
    }
    const std::string replace =
        R"({"type":"Replace","pattern":{"String":" "},"content":"▁"})";
    const std::string prepend = R"({"type":"Prepend","prepend":"▁"},)";
    std::string decoders =
        R"({"type":"Replace","pattern":{"String":"▁"},"content":" "},{"type":"ByteFallback"},{"type":"Fuse"})";
    if (prefix) decoders += R"(,{"type":"Strip","content":" ","start":1,"stop":0})";
    std::string unknown = "null";
    if (const auto id = token_id("tokenizer.ggml.unknown_token_id")) {
      unknown.clear();
      append_json_text(unknown, tokens_[*id]);
    }
    return "{" +
           pair_of("normalizer", R"({"type":"Sequence","normalizers":[)" +
                                     (prefix ? prepend : std::string()) + replace + "]}") +
           "," + pair_of("pre_tokenizer", "null") + "," +
           pair_of("decoder", R"({"type":"Sequence","decoders":[)" + decoders + "]}") + "," +
           pair_of("model",
                   R"({"type":"BPE","byte_fallback":true,"fuse_unk":true,"unk_token":)" + unknown +
                       "," + pair_of("vocab", vocabulary()) + "," +
                       pair_of("merges", scored_merges()) + "}") +
           "}";
  }

  struct Merge {
    double score;
    std::size_t left_size, right_size;  // characters
    std::string_view left, right;
    std::uint32_t left_id, right_id;
  };

  void add_splits(std::size_t id, double score, std::vector<Merge>& merges) const {
    const std::string_view piece = tokens_[id];
    const std::size_t begin = merges.size(), size = utf8_count(piece);
    std::size_t left_size = 0;
    for (std::size_t at = 0; at < piece.size(); ++left_size) {
      const std::size_t cut = at;
      at += utf8_length(piece[at]);
      if (cut == 0) continue;
      const auto left = ids_.find(piece.substr(0, cut)), right = ids_.find(piece.substr(cut));
      if (left == ids_.end() || right == ids_.end()) continue;
      merges.push_back({score, left_size, size - left_size, left->first, right->first, left->second,
                        right->second});
    }
    std::sort(merges.begin() + static_cast<std::ptrdiff_t>(begin), merges.end(),
              [](const Merge& a, const Merge& b) {
                return std::tie(a.left_id, a.right_id) < std::tie(b.left_id, b.right_id);
              });
  }

  std::string scored_merges() {
    const auto scores = metadata_.numbers("tokenizer.ggml.scores");
    if (scores.size() != tokens_.size()) {
      metadata_.fail("tokenizer.ggml.scores", "has " + std::to_string(scores.size()) +
                                                  " items for " + std::to_string(tokens_.size()) +
                                                  " tokens");
    }
    for (std::size_t id = 0; id < tokens_.size(); ++id) {
      if (types_[id] == TokenType::normal) ids_.emplace(tokens_[id], id);
    }
    std::vector<Merge> merges;
    for (std::size_t id = 0; id < tokens_.size(); ++id) {
      if (types_[id] == TokenType::normal) add_splits(id, scores[id], merges);
    }
    std::stable_sort(merges.begin(), merges.end(), [](const Merge& a, const Merge& b) {
      return std::tie(a.score, a.left_size, a.right_size) >
             std::tie(b.score, b.left_size, b.right_size);
    });
    std::string json = "[";
    for (const Merge& merge : merges) {
      json += json.size() > 1 ? ",[" : "[";
      append_json_text(json, merge.left);
      json += ',';
      append_json_text(json, merge.right);
      json += ']';
    }
    return json + "]";
  }

  std::optional<std::size_t> token_id(std::string_view key) const {
    const auto id = metadata_.integer(key, {0, static_cast<std::int64_t>(tokens_.size()) - 1});
    return id ? std::optional<std::size_t>(*id) : std::nullopt;
  }

  // Tokens that are found in a text before words are.
  void add_tokens(TokenizerConfig& config) const {
    for (std::size_t id = 0; id < tokens_.size(); ++id) {
      const bool special = types_[id] == TokenType::control || types_[id] == TokenType::unknown;
      if (!special && types_[id] != TokenType::user_defined) continue;
      AddedToken token;
      token.content = tokens_[id];
      token.special = special;
      config.added.push_back(std::move(token));
    }
  }

  const gguf::Metadata& metadata_;
  std::vector<std::string_view> tokens_;
  std::vector<TokenType> types_;
  std::map<std::string_view, std::uint32_t> ids_;  // of normal tokens
  bool adds_bos_ = false;
};

}  // namespace

GgufTokenizer read_gguf_tokenizer(const gguf::Metadata& metadata) {
  return Converter(metadata).convert();
}

}  // namespace quire
