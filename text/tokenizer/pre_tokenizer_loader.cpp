#include <fmt/format.h>

#include "base/json.h"
#include "base/utf8.h"
#include "text/tokenizer/metaspace.h"
#include "text/tokenizer/pre_tokenizer_steps.h"
#include "text/tokenizer/replacement.h"
#include "text/unicode.h"

namespace quire {
namespace {

using Steps = std::vector<std::unique_ptr<PreTokenizer>>;

SplitBehavior behavior_of(const Json& field) {
  const std::string_view name = field.as_string();
  if (name == "Removed") return SplitBehavior::removed;
  if (name == "Isolated") return SplitBehavior::isolated;
  if (name == "MergedWithPrevious") return SplitBehavior::merged_with_previous;
  if (name == "MergedWithNext") return SplitBehavior::merged_with_next;
  if (name == "Contiguous") return SplitBehavior::contiguous;
  field.fail(fmt::format("\"{}\" is not a behavior that is known", name));
}

class Loader {
 public:
  Loader(bool plain_bytes, std::optional<bool> prefix_space)
      : plain_bytes_(plain_bytes), prefix_space_(prefix_space) {}

  void load(const Json& field, bool last) {
    const std::string type = field.need_text("type");
    if (type == "Sequence") {
      std::size_t left = field.at("pretokenizers").items().size();
      for (const Json item : field.at("pretokenizers").items()) load(item, last && --left == 0);
    } else if (type == "Split") {
      split(load_pattern(field.at("pattern")), behavior_of(field.at("behavior")),
            field.at("invert").as_boolean());
    } else if (type == "ByteLevel") {
      byte_level(field, last);
    } else if (type == "Metaspace") {
      metaspace(field);
    } else if (type == "Digits") {
      split(make_char_pattern(is_numeric), field.at("individual_digits").as_boolean()
                                               ? SplitBehavior::isolated
                                               : SplitBehavior::contiguous);
    } else if (type == "Punctuation") {
      const auto behavior = field.find({"behavior"});
      split(make_char_pattern(is_punctuation),
            behavior ? behavior_of(*behavior) : SplitBehavior::isolated);
    } else if (type == "Whitespace") {
      steps_.push_back(std::make_unique<WordCharStep>());
    } else if (type == "WhitespaceSplit") {
      split(make_char_pattern(is_white_space), SplitBehavior::removed);
    } else if (type == "BertPreTokenizer") {
      split(make_char_pattern(is_white_space), SplitBehavior::removed);
      split(make_char_pattern(is_punctuation), SplitBehavior::isolated);
    } else if (type == "CharDelimiterSplit" || type == "Delimiter") {
      split(make_literal_pattern(field.at("delimiter").as_character()), SplitBehavior::removed);
    } else if (type == "FixedLength") {
      const auto length = field.find({"length"});
      steps_.push_back(std::make_unique<FixedLengthStep>(
          length ? static_cast<std::size_t>(length->as_integer({1, INT64_MAX})) : 5));
    } else {
      field.at("type").fail(fmt::format("\"{}\" is not a pre-tokenizer that is known", type));
    }
  }

  Steps take() { return std::move(steps_); }

 private:
  void split(std::unique_ptr<SplitPattern> pattern, SplitBehavior behavior, bool invert = false) {
    steps_.push_back(std::make_unique<SplitStep>(std::move(pattern), behavior, invert));
  }

  void byte_level(const Json& field, bool last) {
    const bool published = field.at("add_prefix_space").as_boolean();
    if (prefix_space_.value_or(published)) {
      steps_.push_back(std::make_unique<PrefixSpaceStep>());
    }
    if (field.boolean({"use_regex"}).value_or(true)) {
      split(make_regex_pattern(kByteLevelExpression), SplitBehavior::isolated);
    }
    if (!(last && plain_bytes_)) steps_.push_back(std::make_unique<ByteCharsStep>());
  }

  void metaspace(const Json& field) {
    const MetaspaceOptions options = load_metaspace(field);
    steps_.push_back(std::make_unique<MetaspaceStep>(options.replacement, options.scheme));
    if (options.split) {
      split(make_literal_pattern(options.replacement), SplitBehavior::merged_with_next);
    }
  }

  bool plain_bytes_;
  std::optional<bool> prefix_space_;
  Steps steps_;
};

}  // namespace

MetaspaceOptions load_metaspace(const Json& field) {
  MetaspaceOptions options;
  options.replacement = field.at("replacement").as_character();
  options.split = field.boolean({"split"}).value_or(true);
  const auto scheme = field.find({"prepend_scheme"});
  const std::string_view name = scheme ? scheme->as_string() : "always";
  if (name != "always" && name != "first" && name != "never") {
    scheme->fail("expected \"always\", \"first\" or \"never\"");
  }
  options.scheme = name == "always"  ? PrependScheme::always
                   : name == "first" ? PrependScheme::first
                                     : PrependScheme::never;
  if (!field.boolean({"add_prefix_space"}).value_or(true)) {  // the older form
    if (scheme && options.scheme != PrependScheme::never) {
      scheme->fail("contradicts add_prefix_space");
    }
    options.scheme = PrependScheme::never;
  }
  return options;
}

Steps load_pre_tokenizers(const Json& field, bool plain_bytes, std::optional<bool> prefix_space) {
  Loader loader(plain_bytes, prefix_space);
  loader.load(field, /*last=*/true);
  return loader.take();
}

bool ends_in_byte_level(const Json& field) {
  const std::string type = field.need_text("type");
  if (type != "Sequence") return type == "ByteLevel";
  const auto items = field.at("pretokenizers").items();
  return !items.empty() && ends_in_byte_level(items[items.size() - 1]);
}

}  // namespace quire
