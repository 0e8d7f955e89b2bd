#include "jinja/values/percent_format.h"

#include <algorithm>
#include <cctype>
#include <cmath>

#include "jinja/error.h"
#include "jinja/evaluation.h"
#include "jinja/values/arithmetic.h"
#include "jinja/values/dict.h"
#include "jinja/values/format_spec.h"
#include "jinja/values/markup.h"
#include "jinja/values/operators.h"
#include "jinja/values/repr.h"
#include "jinja/values/sequence.h"
#include "jinja/values/unicode.h"

namespace quire::jinja {
namespace {

using Kind = Value::Kind;

class PercentFormatter {
 public:
  PercentFormatter(Evaluation& evaluation, const Value& format, const Value& values)
      : evaluation_(evaluation),
        format_(format.string()),
        safe_(format.text().safe),
        values_(values) {}

  Value run() {
    while (at_ < format_.size()) {
      const std::size_t percent = std::min(format_.find('%', at_), format_.size());
      append(format_.substr(at_, percent - at_));
      at_ = percent;
      if (at_ < format_.size()) append(directive());
    }
    const bool all_used = values_.is(Kind::tuple) ? next_ == values_.tuple().items.size()
                                                  : next_ == 1 || is_mapping();
    if (!all_used) fail(ErrorKind::type, "not all arguments converted during string formatting");
    return Value(std::move(out_), safe_);
  }

 private:
  bool is_mapping() const {
    return values_.is(Kind::dict) || values_.is(Kind::list) || values_.is_undefined();
  }
  void append(std::string_view text) {
    evaluation_.charge_text(text.size());
    out_ += text;
  }
  Value next_value() {
    if (values_.is(Kind::tuple) ? next_ < values_.tuple().items.size() : next_ == 0) {
      ++next_;
      return values_.is(Kind::tuple) ? values_.tuple().items[next_ - 1] : values_;
    }
    fail(ErrorKind::type, "not enough arguments for format string");
  }
  char take() {
    if (at_ >= format_.size()) fail(ErrorKind::value, "incomplete format");
    return format_[at_++];
  }

  std::string directive();
  Value keyed_value();
  std::int64_t read_count();
  std::string convert(char type, const Value& value, FormatSpec& spec);
  std::string convert_digits(char type, const Value& integer, const FormatSpec& spec);
  std::string convert_number(char type, const Value& value, FormatSpec& spec);

  Evaluation& evaluation_;
  const std::string& format_;
  bool safe_;
  const Value& values_;
  std::size_t at_ = 0;
  std::size_t next_ = 0;
  std::string out_;
};

// %(name)s
Value PercentFormatter::keyed_value() {
  if (!values_.is(Kind::dict)) fail(ErrorKind::type, "format requires a mapping");
  int open = 1;
  const std::size_t begin = at_;
  while (open > 0) {
    const char c = take();
    open += c == '(' ? 1 : c == ')' ? -1 : 0;
  }
  const std::string key = format_.substr(begin, at_ - 1 - begin);
  const Value* found = values_.dict().find(std::string_view(key));
  if (found == nullptr) fail(ErrorKind::lookup, repr(std::string_view(key)));
  return *found;
}

std::int64_t PercentFormatter::read_count() {
  if (at_ < format_.size() && format_[at_] == '*') {
    ++at_;
    const Value count = next_value();
    if (!count.is(Kind::integer)) fail(ErrorKind::type, "* wants int");
    return count.integer();
  }
  std::int64_t n = 0;
  while (at_ < format_.size() && std::isdigit(static_cast<unsigned char>(format_[at_]))) {
    if (n > INT32_MAX) fail(ErrorKind::value, "width too big");
    n = n * 10 + (take() - '0');
  }
  return n;
}

std::string PercentFormatter::directive() {
  take();
  FormatSpec spec;
  std::optional<Value> keyed;
  if (at_ < format_.size() && format_[at_] == '(') {
    take();
    keyed = keyed_value();
  }
  bool left = false;
  bool zero = false;
  for (; at_ < format_.size() &&
         std::string_view("#0- +").find(format_[at_]) != std::string_view::npos;
       ++at_) {
    const char flag = format_[at_];
    left = left || flag == '-';
    zero = zero || flag == '0';
    spec.alternate = spec.alternate || flag == '#';
    if (flag == '+' || (flag == ' ' && spec.sign != '+')) spec.sign = flag;
  }
  spec.width = read_count();
  if (spec.width < 0) {
    left = true;
    spec.width = -spec.width;
  }
  if (at_ < format_.size() && format_[at_] == '.') {
    take();
    spec.precision = std::max<std::int64_t>(read_count(), 0);
  }
  while (at_ < format_.size() &&
         std::string_view("hlL").find(format_[at_]) != std::string_view::npos)
    ++at_;
  const char type = take();
  if (type == '%') return "%";
  const bool is_text = std::string_view("srac").find(type) != std::string_view::npos;
  spec.align = left ? '<' : zero && !is_text ? '=' : '>';
  if (spec.align == '=') spec.fill = '0';
  return convert(type, keyed ? *keyed : next_value(), spec);
}

std::string PercentFormatter::convert(char type, const Value& value, FormatSpec& spec) {
  if (type != 's' && type != 'r' && type != 'a' && type != 'c')
    return convert_number(type, value, spec);
  std::string text;
  if (type == 'c') {
    if (!is_integral(value) && !(value.is_string() && value.text().length() == 1)) {
      fail(ErrorKind::type, "%c requires int or char");
    }
    if (value.is_string()) {
      text = value.string();
    } else {
      const std::int64_t c = as_index(value);
      if (c < 0 || c >= 0x110000) fail(ErrorKind::overflow, "%c arg not in range(0x110000)");
      unicode::append(text, char32_t(c));
    }
  } else {
    text = type == 's' ? (safe_ ? escape(value).string() : to_text(value)) : repr(value);
    if (safe_ && type != 's') text = escape_html(text);
  }
  if (spec.precision >= 0 && type != 'c')
    text.resize(unicode::skip(text, std::size_t(spec.precision)));
  return pad_text(evaluation_, std::move(text), spec, '>');
}

// Python's % has a precision for integers: this many digits at least.
std::string PercentFormatter::convert_digits(char type, const Value& integer,
                                             const FormatSpec& spec) {
  FormatSpec digits;
  digits.type = type == 'i' || type == 'u' ? 'd' : type;
  std::string text = format_value(evaluation_, integer, digits);
  const std::size_t sign = text.starts_with('-');
  evaluation_.charge_text(std::uint64_t(spec.precision));
  const auto wanted = std::size_t(spec.precision) + sign;
  if (text.size() < wanted) text.insert(sign, wanted - text.size(), '0');
  if (sign == 0 && spec.sign != '-') text.insert(0, 1, spec.sign);
  return pad_text(evaluation_, std::move(text), spec, '>');
}

std::string PercentFormatter::convert_number(char type, const Value& value, FormatSpec& spec) {
  const bool whole = std::string_view("diouxX").find(type) != std::string_view::npos;
  if (!whole && std::string_view("eEfFgG").find(type) == std::string_view::npos) {
    fail(ErrorKind::value, std::string("unsupported format character '") + type + "'");
  }
  if (value.is_undefined()) fail_undefined(value);
  if (!is_number(value)) {
    fail(ErrorKind::type, whole ? std::string("%") + type +
                                      " format: a real number is required, not " +
                                      std::string(type_name(value))
                                : "must be real number, not " + std::string(type_name(value)));
  }
  if (!whole) {
    spec.type = type;
    return format_value(evaluation_, value, spec);
  }
  Value integer = value;
  if (value.is(Kind::real)) {
    if (type != 'd' && type != 'i' && type != 'u') {
      fail(ErrorKind::type, std::string("%") + type + " format: an integer is required, not float");
    }
    if (!std::isfinite(value.real()))
      fail(ErrorKind::overflow, "cannot convert float infinity to integer");
    integer = Value(BigInt::from_real(value.real()));
  }
  if (spec.precision > 0) return convert_digits(type, integer, spec);
  spec.precision = -1;
  spec.type = type == 'i' || type == 'u' ? 'd' : type;
  return format_value(evaluation_, integer, spec);
}

}  // namespace

Value percent_format(Evaluation& evaluation, const Value& format, const Value& values) {
  return PercentFormatter(evaluation, format, values).run();
}

}  // namespace quire::jinja
