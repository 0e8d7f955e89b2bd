#include "text/tokenizer/gguf_words.h"

#include <algorithm>

#include "base/json_text.h"
#include "gguf/printable.h"

namespace quire {

namespace {

#define QUIRE_CONTRACTIONS "(?i:'s|'t|'re|'ve|'m|'ll|'d)"
#define QUIRE_SPACES "|\\s*[\\r\\n]+|\\s+(?!\\S)|\\s+"

constexpr std::string_view kLlama3 =
    QUIRE_CONTRACTIONS
    "|[^\\r\\n\\p{L}\\p{N}]?\\p{L}+|\\p{N}{1,3}| ?[^\\s\\p{L}\\p{N}]+[\\r\\n]*" QUIRE_SPACES;
constexpr std::string_view kQwen2 =
    QUIRE_CONTRACTIONS
    "|[^\\r\\n\\p{L}\\p{N}]?\\p{L}+|\\p{N}| ?[^\\s\\p{L}\\p{N}]+[\\r\\n]*" QUIRE_SPACES;
constexpr std::string_view kQwen35 =
    QUIRE_CONTRACTIONS
    "|[^\\r\\n\\p{L}\\p{N}]?[\\p{L}\\p{M}]+|\\p{N}| ?[^\\s\\p{L}\\p{M}\\p{N}]+[\\r\\n]*" QUIRE_SPACES;

#define QUIRE_UPPER "[\\p{Lu}\\p{Lt}\\p{Lm}\\p{Lo}\\p{M}]"
#define QUIRE_LOWER "[\\p{Ll}\\p{Lm}\\p{Lo}\\p{M}]"
#define QUIRE_BEFORE "[^\\r\\n\\p{L}\\p{N}]?"

constexpr std::string_view kTekken =
    QUIRE_BEFORE QUIRE_UPPER "*" QUIRE_LOWER "+|" QUIRE_BEFORE QUIRE_UPPER "+" QUIRE_LOWER
                             "*|\\p{N}| ?[^\\s\\p{L}\\p{N}]+[\\r\\n/]*" QUIRE_SPACES;
constexpr std::string_view kGpt4o =
    QUIRE_BEFORE QUIRE_UPPER "*" QUIRE_LOWER "+" QUIRE_CONTRACTIONS "?|" QUIRE_BEFORE QUIRE_UPPER
                             "+" QUIRE_LOWER "*" QUIRE_CONTRACTIONS
                             "?|\\p{N}{1,3}| ?[^\\s\\p{L}\\p{N}]+[\\r\\n/]*" QUIRE_SPACES;

constexpr std::string_view kDeepseekDigits = "\\p{N}{1,3}";
constexpr std::string_view kDeepseekHan = "[一-龥\u3040-ゟ゠-ヿ]+";
constexpr std::string_view kDeepseekWords =
    "[!\"#$%&'()*+,\\-./:;<=>?@\\[\\\\\\]^_`{|}~][A-Za-z]+|[^\\r\\n\\p{L}\\p{P}\\p{S}]?"
    "[\\p{L}\\p{M}]+| ?[\\p{P}\\p{S}]+[\\r\\n]*" QUIRE_SPACES;

const std::vector<GgufWords>& all_words() {
  static const std::vector<GgufWords> all = {
      {.names = {"llama-bpe", "llama3", "llama-v3", "falcon3", "pixtral"},
       .splits = {kLlama3},
       .ignore_merges = true,
       .adds_bos = true},
      {.names = {"dbrx", "smaug-bpe", "glm4", "chatglm-bpe"}, .splits = {kLlama3}},
      {.names = {"qwen2"}, .splits = {kQwen2}, .nfc = true},
      {.names = {"deepseek-r1-qwen", "megrez", "stablelm2"}, .splits = {kQwen2}},
      {.names = {"qwen35"}, .splits = {kQwen35}, .nfc = true},
      {.names = {"tekken"}, .splits = {kTekken}, .ignore_merges = true, .adds_bos = true},
      {.names = {"gpt-4o", "llama4", "kanana2"}, .splits = {kGpt4o}},
      {.names = {"deepseek-v3", "hunyuan-dense"},
       .splits = {kDeepseekDigits, kDeepseekHan, kDeepseekWords}},
      {.names = {"gpt-2", "olmo", "mpt", "phi-2", "trillion", "exaone4"},
       .splits = {},
       .gpt2 = true},
      {.names = {"smollm", "starcoder", "refact", "minerva-7b", "codeshell"},
       .splits = {},
       .digits = true,
       .gpt2 = true},
  };
  return all;
}

}  // namespace

std::string GgufWords::pre_tokenizer_json() const {
  std::string json = R"({"type":"Sequence","pretokenizers":[)";
  if (digits) json += R"({"type":"Digits","individual_digits":true},)";
  for (const std::string_view split : splits) {
    json += R"({"type":"Split","pattern":{"Regex":)";
    append_json_text(json, split);
    json += R"(},"behavior":"Isolated","invert":false},)";
  }
  json += R"({"type":"ByteLevel","add_prefix_space":false,"trim_offsets":false,"use_regex":)";
  return json + (gpt2 ? "true" : "false") + "}]}";
}

const GgufWords& gguf_words(const gguf::Metadata& metadata) {
  const std::string_view name = metadata.need_text("tokenizer.ggml.pre");
  std::string known;
  for (const GgufWords& words : all_words()) {
    if (std::ranges::find(words.names, name) != words.names.end()) return words;
    for (const std::string_view one : words.names) {
      known += (known.empty() ? "" : ", ") + std::string(one);
    }
  }
  metadata.fail("tokenizer.ggml.pre",
                gguf::printable(name) + " is not supported (" + known + ")",
                ErrorCode::unsupported);
}

}  // namespace quire
