#include "jinja/values/json.h"

#include <algorithm>
#include <cmath>

#include "jinja/error.h"
#include "jinja/values/dict.h"
#include "jinja/values/operators.h"
#include "jinja/values/repr.h"
#include "jinja/values/unicode.h"

namespace quire::jinja {
namespace {

using Kind = Value::Kind;

constexpr std::size_t kMaxBytes = 16 << 20;

class JsonWriter {
 public:
  explicit JsonWriter(const JsonStyle& style) : style_(style) {}

  void write(const Value& value, int depth) {
    if (out_.size() > kMaxBytes)
      fail(ErrorKind::limit, "JSON of more than " + std::to_string(kMaxBytes) + " bytes");
    switch (value.kind()) {
      case Kind::string:
        return write_text(value.string());
      case Kind::list:
      case Kind::tuple:
        return write_list(value.items(), depth);
      case Kind::dict:
        return write_dict(value.dict(), depth);
      case Kind::none:
      case Kind::boolean:
      case Kind::integer:
      case Kind::big_integer:
      case Kind::real:
        return void(out_ += scalar(value));
      default:
        fail(ErrorKind::type,
             "Object of type " + std::string(type_name(value)) + " is not JSON serializable");
    }
  }

  std::string take() { return std::move(out_); }

 private:
  static std::string scalar(const Value& value) {
    if (value.is_none()) return "null";
    if (value.is(Kind::boolean)) return value.boolean() ? "true" : "false";
    if (!value.is(Kind::real)) return repr(value);
    if (std::isnan(value.real())) return "NaN";
    if (std::isinf(value.real())) return value.real() < 0 ? "-Infinity" : "Infinity";
    return repr(value.real());
  }

  void write_escape(char32_t c) {
    static constexpr char kHex[] = "0123456789abcdef";
    out_ += "\\u";
    for (int shift = 12; shift >= 0; shift -= 4) out_ += kHex[c >> shift & 15];
  }

  void write_text(std::string_view text) {
    out_.push_back('"');
    for (std::size_t i = 0; i < text.size();) {
      const std::size_t begin = i;
      const char32_t c = unicode::next(text, i);
      static constexpr std::string_view kSpecial = "\"\\\n\r\t\f\b";
      const std::size_t special = c < 0x80 ? kSpecial.find(char(c)) : kSpecial.npos;
      if (special != kSpecial.npos) {
        out_.push_back('\\');
        out_.push_back("\"\\nrtfb"[special]);
      } else if (c < 0x20 || (style_.ensure_ascii && c > 0x7e && c < 0x10000)) {
        write_escape(c);
      } else if (style_.ensure_ascii && c >= 0x10000) {
        write_escape(0xd800 + ((c - 0x10000) >> 10));
        write_escape(0xdc00 + ((c - 0x10000) & 0x3ff));
      } else {
        out_.append(text, begin, i - begin);
      }
    }
    out_.push_back('"');
  }

  void new_line(int depth) {
    if (!style_.indent) return;
    out_.push_back('\n');
    for (int i = 0; i < depth; ++i) out_ += *style_.indent;
  }

  void write_list(const List& items, int depth) {
    if (items.empty()) return void(out_ += "[]");
    out_.push_back('[');
    for (std::size_t i = 0; i < items.size(); ++i) {
      if (i > 0) out_ += style_.item_separator;
      new_line(depth + 1);
      write(items[i], depth + 1);
    }
    new_line(depth);
    out_.push_back(']');
  }

  void write_key(const Value& key) {
    if (key.is_string()) return write_text(key.string());
    if (!key.is_none() && !is_number(key)) {
      fail(ErrorKind::type,
           "keys must be str, int, float, bool or None, not " + std::string(type_name(key)));
    }
    (out_ += '"').append(scalar(key)) += '"';
  }

  void write_dict(const Dict& dict, int depth) {
    if (dict.empty()) return void(out_ += "{}");
    std::vector<const Dict::Entry*> entries;
    for (const Dict::Entry& entry : dict) entries.push_back(&entry);
    if (style_.sort_keys) {
      std::stable_sort(entries.begin(), entries.end(), [](const auto* a, const auto* b) {
        return ordered(Order::less, a->key, b->key);
      });
    }
    out_.push_back('{');
    for (std::size_t i = 0; i < entries.size(); ++i) {
      if (i > 0) out_ += style_.item_separator;
      new_line(depth + 1);
      write_key(entries[i]->key);
      out_ += style_.key_separator;
      write(entries[i]->value, depth + 1);
    }
    new_line(depth);
    out_.push_back('}');
  }

  const JsonStyle& style_;
  std::string out_;
};

}  // namespace

std::string dump_json(const Value& value, const JsonStyle& style) {
  JsonWriter writer(style);
  writer.write(value, 0);
  return writer.take();
}

}  // namespace quire::jinja
