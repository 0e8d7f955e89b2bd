#include "text/tokenizer/normalizer.h"

#include <fmt/format.h>

#include <algorithm>
#include <string_view>
#include <vector>

#include "base/error.h"
#include "base/json.h"
#include "base/utf8.h"
#include "text/tokenizer/byte_chars.h"
#include "text/tokenizer/replacement.h"
#include "text/unicode.h"

namespace quire {
namespace {

bool is_ascii(std::string_view text) {
  return std::all_of(text.begin(), text.end(), [](char c) { return c >= 0; });
}

// Each character becomes what `write(out, c)` writes for it.
template <class Write>
void map_chars(NormalizedText& text, Write&& write) {
  std::string out;
  out.reserve(text.text.size());
  for_each_char(text.text, [&](char32_t c, std::string_view) { write(out, c); });
  text.text = std::move(out);
}

template <class Keep>
void filter_chars(NormalizedText& text, Keep&& keep) {
  if (!text.text.empty()) {
    const char* first = text.text.data();
    text.keeps_start = text.keeps_start && keep(utf8_next(first));
  }
  map_chars(text, [&](std::string& out, char32_t c) {
    if (keep(c)) utf8_append(out, c);
  });
}

void lowercase(NormalizedText& text) {
  if (is_ascii(text.text)) {
    for (char& c : text.text) c += c >= 'A' && c <= 'Z' ? 'a' - 'A' : 0;
  } else {
    map_chars(text, append_lowercase);
  }
}

class Sequence final : public Normalizer {
 public:
  explicit Sequence(const Json& field) {
    for (const Json& item : field.at("normalizers").items()) {
      steps_.push_back(load_normalizer(item));
    }
  }
  void apply(NormalizedText& text) const override {
    const std::size_t before = text.text.size();
    for (const auto& step : steps_) {
      step->apply(text);
      check_growth(before, text.text.size());
    }
  }

 private:
  std::vector<std::unique_ptr<Normalizer>> steps_;
};

class UnicodeForm final : public Normalizer {
 public:
  // What the first use would have to compute is computed while loading.
  explicit UnicodeForm(NormalForm form) : form_(form) { normal_form("\u00e9", form); }
  void apply(NormalizedText& text) const override {
    if (!is_ascii(text.text)) text.text = normal_form(text.text, form_);
  }

 private:
  NormalForm form_;
};

class Lowercase final : public Normalizer {
 public:
  void apply(NormalizedText& text) const override { lowercase(text); }
};

class StripAccents final : public Normalizer {
 public:
  void apply(NormalizedText& text) const override {
    filter_chars(text, [](char32_t c) { return !is_combining_mark(c); });
  }
};

class Strip final : public Normalizer {
 public:
  explicit Strip(const Json& field)
      : left_(field.at("strip_left").as_boolean()), right_(field.at("strip_right").as_boolean()) {}

  void apply(NormalizedText& text) const override {
    const char* begin = text.text.data();
    const char* end = begin + text.text.size();
    for (const char* next = begin; left_ && begin < end && is_white_space(utf8_next(next));) {
      begin = next;
    }
    for (const char* last = end; right_ && begin < end && is_white_space(utf8_previous(last));) {
      end = last;
    }
    text.keeps_start = text.keeps_start && begin == text.text.data();
    text.text = std::string(begin, end);
  }

 private:
  bool left_, right_;
};

class Prepend final : public Normalizer {
 public:
  explicit Prepend(const Json& field) : prefix_(field.need_text("prepend")) {
    if (prefix_.size() > kMaxInsertedBytes) field.at("prepend").fail("has more than 256 bytes");
  }
  void apply(NormalizedText& text) const override {
    if (!text.text.empty()) text.text.insert(0, prefix_);
  }

 private:
  std::string prefix_;
};

class Replace final : public Normalizer {
 public:
  explicit Replace(const Json& field) : replacement_(field) {}
  void apply(NormalizedText& text) const override {
    const auto first = replacement_.apply(text.text);
    // What is put in belongs to the last character of what it replaces.
    const bool moved =
        first.begin == 0 && first.end > 0 && (replacement_.content().empty() || first.chars > 1);
    text.keeps_start = text.keeps_start && !moved;
  }

 private:
  Replacement replacement_;
};

class Nmt final : public Normalizer {
 public:
  void apply(NormalizedText& text) const override {
    filter_chars(text, [](char32_t c) { return !is_dropped(c); });
    map_chars(text, [](std::string& out, char32_t c) { utf8_append(out, is_space(c) ? ' ' : c); });
  }

 private:
  static bool is_dropped(char32_t c) {
    return (c >= 1 && c <= 8) || c == 0x0B || (c >= 0x0E && c <= 0x1F) || c == 0x7F || c == 0x8F ||
           c == 0x9F;
  }
  static bool is_space(char32_t c) {
    return c == 9 || c == 10 || c == 12 || c == 13 || c == 0x1680 || (c >= 0x200B && c <= 0x200F) ||
           c == 0x2028 || c == 0x2029 || c == 0x2581 || c == 0xFEFF || c == 0xFFFD;
  }
};

class Bert final : public Normalizer {
 public:
  explicit Bert(const Json& field)
      : clean_(field.at("clean_text").as_boolean()),
        chinese_(field.at("handle_chinese_chars").as_boolean()),
        lowercase_(field.at("lowercase").as_boolean()),
        accents_(field.boolean({"strip_accents"}).value_or(lowercase_)) {}

  void apply(NormalizedText& text) const override {
    if (clean_) {
      filter_chars(text, [](char32_t c) { return c != 0 && c != 0xFFFD && !is_control(c); });
      map_chars(text, [](std::string& out, char32_t c) {
        utf8_append(out, is_white_space(c) ? ' ' : c);
      });
    }
    if (chinese_) map_chars(text, space_out_chinese);
    if (accents_ && !is_ascii(text.text)) {
      text.text = normal_form(text.text, NormalForm::nfd);
      filter_chars(text, [](char32_t c) { return !is_nonspacing_mark(c); });
    }
    if (lowercase_) lowercase(text);
  }

 private:
  static void space_out_chinese(std::string& out, char32_t c) {
    const bool chinese = is_chinese(c);
    if (chinese) out += ' ';
    utf8_append(out, c);
    if (chinese) out += ' ';
  }

  bool clean_, chinese_, lowercase_, accents_;
};

class ByteLevel final : public Normalizer {
 public:
  void apply(NormalizedText& text) const override {
    std::string out;
    append_chars_of_bytes(out, text.text);
    text.text = std::move(out);
  }
};

}  // namespace

void check_growth(std::size_t bytes_before, std::size_t bytes_now) {
  constexpr std::size_t kMaxFactor = 64;  // Unicode's own forms need up to 11
  if (bytes_now <= kMaxFactor * bytes_before + kMaxInsertedBytes) return;
  throw Failure(
      ErrorCode::invalid_argument,
      fmt::format("the tokenizer's normalizer makes {} bytes of {}", bytes_now, bytes_before));
}

std::unique_ptr<Normalizer> load_normalizer(const Json& field) {
  const std::string type = field.need_text("type");
  if (type == "Sequence") return std::make_unique<Sequence>(field);
  if (type == "NFC") return std::make_unique<UnicodeForm>(NormalForm::nfc);
  if (type == "NFD") return std::make_unique<UnicodeForm>(NormalForm::nfd);
  if (type == "NFKC") return std::make_unique<UnicodeForm>(NormalForm::nfkc);
  if (type == "NFKD") return std::make_unique<UnicodeForm>(NormalForm::nfkd);
  if (type == "Lowercase") return std::make_unique<Lowercase>();
  if (type == "StripAccents") return std::make_unique<StripAccents>();
  if (type == "Strip") return std::make_unique<Strip>(field);
  if (type == "Prepend") return std::make_unique<Prepend>(field);
  if (type == "Replace") return std::make_unique<Replace>(field);
  if (type == "Nmt") return std::make_unique<Nmt>();
  if (type == "Precompiled") return load_precompiled(field);
  if (type == "BertNormalizer") return std::make_unique<Bert>(field);
  if (type == "ByteLevel") return std::make_unique<ByteLevel>();
  field.at("type").fail(fmt::format("\"{}\" is not a normalizer that is known", type));
}

}  // namespace quire
