#include "gguf/end_tokens.h"

#include <algorithm>
#include <array>

namespace quire::gguf {

namespace {

// tokenizer.ggml.token_type
constexpr std::int64_t kControl = 3;
constexpr std::int64_t kUserDefined = 4;

constexpr std::array<std::string_view, 20> kEnds = {
    "<|im_end|>",  // ChatML
    "<|endoftext|>",
    "<|end_of_text|>",  // GPT-2's, Llama 3's and Granite's
    "<|eot_id|>",
    "<|eom_id|>",  // Llama 3
    "<|end|>",     // Phi
    "<|return|>",
    "<|call|>",  // gpt-oss
    "<|flush|>",
    "<|calls|>",  // Solar
    "<end_of_turn>",
    "<eos>",  // Gemma
    "<turn|>",
    "<|tool_response>",  // Gemma 4
    "<EOT>",
    "_<EOT>",  // CodeLlama and others
    "[EOT]",
    "[EOS]",  // Kimi
    "<end_of_utterance>",
    "<｜end▁of▁sentence｜>",  // SmolVLM, DeepSeek
};

class Vocabulary {
 public:
  explicit Vocabulary(const Metadata& metadata)
      : tokens_(metadata.texts("tokenizer.ggml.tokens")),
        types_(metadata.integers("tokenizer.ggml.token_type", {0, 16})) {
    types_.resize(tokens_.size());
  }

  bool contains(std::int64_t id) const {
    return tokens_.empty() || id < static_cast<std::int64_t>(tokens_.size());
  }

  std::vector<std::int64_t> ends() const {
    std::vector<std::int64_t> ends;
    for (std::size_t id = 0; id < tokens_.size(); ++id) {
      if (ends_a_turn(id)) ends.push_back(static_cast<std::int64_t>(id));
    }
    return ends;
  }

 private:
  bool ends_a_turn(std::size_t id) const {
    const bool control = types_[id] == kControl;
    if (!control && types_[id] != kUserDefined) return false;
    // HTML's in Gemma's vocabulary, where it is the user's or a leftover.
    if (tokens_[id] == "</s>") return control && !has("<|tool_response>");
    // Of a message, not of the turn, where others end that.
    if (tokens_[id] == "<|end|>" && (has("<|call|>") || has("<|calls|>"))) {
      return !has("<|return|>") && !has("<|flush|>");
    }
    return std::ranges::find(kEnds, tokens_[id]) != kEnds.end();
  }

  bool has(std::string_view text) const {
    return std::ranges::find(tokens_, text) != tokens_.end();
  }

  std::vector<std::string_view> tokens_;
  std::vector<std::int64_t> types_;  // 0: not said
};

}  // namespace

std::vector<std::int64_t> end_tokens(const Metadata& metadata) {
  const Vocabulary vocabulary(metadata);
  std::vector<std::int64_t> ends;
  const auto add = [&](std::int64_t id) {
    if (std::ranges::find(ends, id) == ends.end()) ends.push_back(id);
  };
  for (const char* name : {"tokenizer.ggml.eos_token_id", "tokenizer.ggml.eot_token_id",
                           "tokenizer.ggml.eom_token_id"}) {
    const auto id = metadata.integer(name, {-1, 0xffffffff});
    if (id && *id >= 0 && vocabulary.contains(*id) && *id < 1 << 28) add(*id);
  }
  for (const std::int64_t id : vocabulary.ends()) add(id);
  return ends;
}

}  // namespace quire::gguf
