#include <fmt/format.h>

#include "text/tokenizer/json_field.h"
#include "text/tokenizer/metaspace.h"
#include "text/tokenizer/pre_tokenizer_steps.h"
#include "text/tokenizer/replacement.h"
#include "text/unicode.h"
#include "text/utf8.h"

namespace quire {
namespace {

using Steps = std::vector<std::unique_ptr<PreTokenizer>>;

SplitBehavior behavior_of(const JsonField& field) {
  const std::string_view name = field.string();
  if (name == "Removed") return SplitBehavior::removed;
  if (name == "Isolated") return SplitBehavior::isolated;
  if (name == "MergedWithPrevious") return SplitBehavior::merged_with_previous;
  if (name == "MergedWithNext") return SplitBehavior::merged_with_next;
  if (name == "Contiguous") return SplitBehavior::contiguous;
  field.fail(fmt::format("\"{}\" is not a behavior that is known", name));
}

class Loader {
 public:
  explicit Loader(bool plain_bytes) : plain_bytes_(plain_bytes) {}

  void load(const JsonField& field, bool last) {
    const std::string type = field.required_text("type");
    if (type == "Sequence") {
      const auto items = field.at("pretokenizers").items();
      for (const JsonField& item : items) load(item, last && &item == &items.back());
    } else if (type == "Split") {
      split(load_pattern(field.at("pattern")), behavior_of(field.at("behavior")),
            field.required_flag("invert"));
    } else if (type == "ByteLevel") {
      byte_level(field, last);
    } else if (type == "Metaspace") {
      metaspace(field);
    } else if (type == "Digits") {
      split(make_char_pattern(is_numeric), field.required_flag("individual_digits")
                                               ? SplitBehavior::isolated
                                               : SplitBehavior::contiguous);
    } else if (type == "Punctuation") {
      const auto behavior = field.find("behavior");
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
      std::string delimiter;
      utf8_append(delimiter, field.at("delimiter").character());
      split(make_literal_pattern(delimiter), SplitBehavior::removed);
    } else if (type == "FixedLength") {
      const auto length = field.find("length");
      steps_.push_back(std::make_unique<FixedLengthStep>(
          length ? static_cast<std::size_t>(length->integer(1, INT64_MAX)) : 5));
    } else {
      field.at("type").fail(fmt::format("\"{}\" is not a pre-tokenizer that is known", type));
    }
  }

  Steps take() { return std::move(steps_); }

 private:
  void split(std::unique_ptr<SplitPattern> pattern, SplitBehavior behavior, bool invert = false) {
    steps_.push_back(std::make_unique<SplitStep>(std::move(pattern), behavior, invert));
  }

  void byte_level(const JsonField& field, bool last) {
    if (field.required_flag("add_prefix_space")) {
      steps_.push_back(std::make_unique<PrefixSpaceStep>());
    }
    if (field.flag("use_regex", true)) {
      split(make_regex_pattern(kByteLevelExpression), SplitBehavior::isolated);
    }
    if (!(last && plain_bytes_)) steps_.push_back(std::make_unique<ByteCharsStep>());
  }

  void metaspace(const JsonField& field) {
    const MetaspaceOptions options = load_metaspace(field);
    steps_.push_back(std::make_unique<MetaspaceStep>(options.replacement, options.scheme));
    if (options.split) {
      split(make_literal_pattern(options.replacement), SplitBehavior::merged_with_next);
    }
  }

  bool plain_bytes_;
  Steps steps_;
};

}  // namespace

MetaspaceOptions load_metaspace(const JsonField& field) {
  MetaspaceOptions options;
  utf8_append(options.replacement, field.at("replacement").character());
  options.split = field.flag("split", true);
  const auto scheme = field.find("prepend_scheme");
  const std::string_view name = scheme ? scheme->string() : "always";
  if (name != "always" && name != "first" && name != "never") {
    scheme->fail("expected \"always\", \"first\" or \"never\"");
  }
  options.scheme = name == "always"  ? PrependScheme::always
                   : name == "first" ? PrependScheme::first
                                     : PrependScheme::never;
  if (!field.flag("add_prefix_space", true)) {  // the older form
    if (scheme && options.scheme != PrependScheme::never) {
      scheme->fail("contradicts add_prefix_space");
    }
    options.scheme = PrependScheme::never;
  }
  return options;
}

Steps load_pre_tokenizers(const JsonField& field, bool plain_bytes) {
  Loader loader(plain_bytes);
  loader.load(field, /*last=*/true);
  return loader.take();
}

bool ends_in_byte_level(const JsonField& field) {
  const std::string type = field.required_text("type");
  if (type != "Sequence") return type == "ByteLevel";
  const auto items = field.at("pretokenizers").items();
  return !items.empty() && ends_in_byte_level(items.back());
}

}  // namespace quire
