#define PCRE2_CODE_UNIT_WIDTH 8
#include <pcre2.h>

#include <fmt/format.h>

#include <algorithm>
#include <memory>

#include "base/error.h"
#include "base/utf8.h"
#include "text/tokenizer/oniguruma.h"
#include "text/tokenizer/scratch_pool.h"
#include "text/tokenizer/split_pattern.h"

namespace quire {
namespace {

// Steps that one match may take: far more than any sensible text needs, and no more than seconds.
constexpr std::uint32_t kMatchLimit = 50'000'000;
constexpr std::size_t kMaxJitStack = 16 << 20;  // bytes

template <auto free_function>
struct FreeBy {
  template <class T>
  void operator()(T* object) const {
    free_function(object);
  }
};
using Code = std::unique_ptr<pcre2_code, FreeBy<pcre2_code_free>>;

struct Matcher {
  std::unique_ptr<pcre2_match_data, FreeBy<pcre2_match_data_free>> data{
      pcre2_match_data_create(1, nullptr)};
  std::unique_ptr<pcre2_match_context, FreeBy<pcre2_match_context_free>> context{
      pcre2_match_context_create(nullptr)};
  std::unique_ptr<pcre2_jit_stack, FreeBy<pcre2_jit_stack_free>> stack{
      pcre2_jit_stack_create(32 << 10, kMaxJitStack, nullptr)};

  Matcher() {
    pcre2_set_match_limit(context.get(), kMatchLimit);
    pcre2_jit_stack_assign(context.get(), nullptr, stack.get());
  }
};

std::string message_of(int code) {
  PCRE2_UCHAR message[256];
  pcre2_get_error_message(code, message, sizeof message);
  return reinterpret_cast<const char*>(message);
}

Code compile(std::string_view expression) {
  const std::string translated = pcre_from_oniguruma(expression);
  int error = 0;
  PCRE2_SIZE error_at = 0;
  // In Ruby's syntax ^ and $ match at every line.
  Code code(pcre2_compile(reinterpret_cast<PCRE2_SPTR>(translated.data()), translated.size(),
                          PCRE2_UTF | PCRE2_UCP | PCRE2_MULTILINE | PCRE2_NEVER_BACKSLASH_C, &error,
                          &error_at, nullptr));
  if (!code) {
    throw Failure(ErrorCode::invalid_argument,
                  fmt::format("the expression is not valid: {}", message_of(error)));
  }
  pcre2_jit_compile(code.get(), PCRE2_JIT_COMPLETE);  // where there is no JIT it is interpreted
  return code;
}

class PcrePattern final : public SplitPattern {
 public:
  explicit PcrePattern(std::string_view expression) : code_(compile(expression)) {}

  void find(std::string_view text, std::vector<Span>& spans) const override {
    ScratchPool<Matcher>::Loan matcher(pool_);
    const PCRE2_SIZE* match = pcre2_get_ovector_pointer((*matcher).data.get());
    spans.clear();
    if (text.empty()) return;  // even where the expression matches nothing
    std::size_t previous = 0;  // the end of the last match
    bool matched = false;
    for (std::size_t from = 0; search(text, from, *matcher);) {
      const auto [begin, end] = std::pair(match[0], match[1]);
      if (begin == end && matched && end == previous) {  // nothing, right behind a match
        if (from == text.size()) break;
        from += utf8_length(text[from]);
        continue;
      }
      if (previous != begin) spans.push_back(span(previous, begin, false));
      spans.push_back(span(begin, end, true));
      from = previous = end;
      matched = true;
    }
    if (previous != text.size()) spans.push_back(span(previous, text.size(), false));
  }

 private:
  static Span span(std::size_t begin, std::size_t end, bool is_match) {
    return {static_cast<std::uint32_t>(begin), static_cast<std::uint32_t>(end), is_match};
  }

  bool search(std::string_view text, std::size_t from, Matcher& matcher) const {
    const auto run = [&](std::uint32_t options) {
      return pcre2_match(code_.get(), reinterpret_cast<PCRE2_SPTR>(text.data()), text.size(), from,
                         options | PCRE2_NO_UTF_CHECK, matcher.data.get(), matcher.context.get());
    };
    int found = run(0);
    if (found == PCRE2_ERROR_JIT_STACKLIMIT) found = run(PCRE2_NO_JIT);
    if (found >= 0) return true;
    if (found == PCRE2_ERROR_NOMATCH) return false;
    throw Failure(
        ErrorCode::invalid_argument,
        fmt::format("the text cannot be split by the tokenizer's pattern: {}", message_of(found)));
  }

  Code code_;
  mutable ScratchPool<Matcher> pool_;
};

}  // namespace

std::unique_ptr<SplitPattern> make_pcre_pattern(std::string_view expression) {
  return std::make_unique<PcrePattern>(expression);
}

}  // namespace quire
