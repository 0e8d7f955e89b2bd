// Methods of texts that cut, join and fill.

#include "jinja/values/brace_format.h"
#include "jinja/values/dict.h"
#include "jinja/values/methods.h"
#include "jinja/values/repr.h"
#include "jinja/values/search.h"
#include "jinja/values/sequence.h"
#include "jinja/values/text_arguments.h"
#include "jinja/values/text_split.h"
#include "jinja/values/unicode.h"

namespace quire::jinja {
namespace {

using Kind = Value::Kind;

Value texts(Evaluation& evaluation, const Value& self, const std::vector<std::string_view>& parts) {
  evaluation.charge(parts.size() * (sizeof(Value) + sizeof(Text)) + self.string().size());
  List items;
  items.reserve(parts.size());
  for (std::string_view part : parts) items.emplace_back(std::string(part), self.text().safe);
  return Value(std::move(items));
}

template <bool from_right>
Value split(Evaluation& evaluation, const Value& self, Arguments& arguments) {
  const List bound = bind(from_right ? "rsplit" : "split", arguments, {"sep", "maxsplit"}, 0);
  const std::int64_t max_split = given(bound, 1) ? as_index(bound[1]) : -1;
  const std::string& text = self.string();
  evaluation.charge(text.size());
  if (!given(bound, 0) || bound[0].is_none()) {
    return texts(evaluation, self,
                 from_right ? rsplit_space(text, max_split) : split_space(text, max_split));
  }
  if (!bound[0].is_string()) {
    fail(ErrorKind::type, "must be str or None, not " + std::string(type_name(bound[0])));
  }
  const std::string& separator = bound[0].string();
  if (separator.empty()) fail(ErrorKind::value, "empty separator");
  return texts(evaluation, self,
               from_right ? rsplit(text, separator, max_split)
                          : quire::jinja::split(text, separator, max_split));
}

Value splitlines(Evaluation& evaluation, const Value& self, Arguments& arguments) {
  const List bound = bind("splitlines", arguments, {"keepends"}, 0);
  return texts(evaluation, self,
               split_lines(self.string(), given(bound, 0) && as_index(bound[0]) != 0));
}

template <bool from_right>
Value partition(Evaluation& evaluation, const Value& self, Arguments& arguments) {
  const Value& separator = positional("partition", arguments, 1, 1)[0];
  require_text("partition()", separator);
  const std::string& text = self.string();
  const std::string& mark = separator.string();
  if (mark.empty()) fail(ErrorKind::value, "empty separator");
  evaluation.charge(2 * text.size());
  const std::size_t at = from_right ? find_text_last(text, mark) : find_text(text, mark);
  const bool safe = self.text().safe;
  const auto part = [&](std::string_view piece) { return Value(std::string(piece), safe); };
  if (at == text.npos)
    return Value(
        Tuple{from_right ? List{part(""), part(""), self} : List{self, part(""), part("")}});
  return Value(Tuple{{part(text.substr(0, at)), part(mark), part(text.substr(at + mark.size()))}});
}

template <bool left, bool right>
Value strip(Evaluation& evaluation, const Value& self, Arguments& arguments) {
  const List& args = positional("strip", arguments, 0, 1);
  evaluation.charge(self.string().size());
  if (args.empty() || args[0].is_none()) {
    return Value(std::string(unicode::strip(self.string(), left, right)), self.text().safe);
  }
  if (!args[0].is_string()) {
    fail(ErrorKind::type, "strip arg must be None or str, not " + std::string(type_name(args[0])));
  }
  const std::string& chars = args[0].string();
  evaluation.charge(self.string().size() + chars.size() * 16);
  return Value(std::string(unicode::strip(self.string(), chars, left, right)), self.text().safe);
}

Value join(Evaluation& evaluation, const Value& self, Arguments& arguments) {
  const Value& items = positional("join", arguments, 1, 1)[0];
  const auto iterator = try_iterate(items);
  if (!iterator) fail(ErrorKind::type, "can only join an iterable");
  std::string text;
  bool first = true;
  std::size_t index = 0;
  for (Value item; iterator->next(item); ++index) {
    evaluation.step();
    if (!item.is_string() && !self.text().safe) {
      fail(ErrorKind::type, "sequence item " + std::to_string(index) + ": expected str instance, " +
                                std::string(type_name(item)) + " found");
    }
    const Value part = self.text().safe ? escape(item) : item;
    evaluation.charge_text(self.string().size() + part.string().size());
    if (!first) text += self.string();
    text += part.string();
    first = false;
  }
  return same_safety(evaluation, self, std::move(text));
}

Value replace(Evaluation& evaluation, const Value& self, Arguments& arguments) {
  const List& args = positional("replace", arguments, 2, 3);
  require_text("replace() argument 1", args[0]);
  require_text("replace() argument 2", args[1]);
  const std::int64_t limit = args.size() > 2 ? as_index(args[2]) : -1;
  return same_safety(evaluation, self,
                     replace_text(evaluation, self.string(), args[0].string(),
                                  text_argument("replace", self, args[1]), limit));
}

enum class Side : std::uint8_t { left, right, both };

template <Side side>
Value pad(Evaluation& evaluation, const Value& self, Arguments& arguments) {
  const List& args = positional(side == Side::both   ? "center"
                                : side == Side::left ? "rjust"
                                                     : "ljust",
                                arguments, 1, 2);
  const std::int64_t width = as_index(args[0]);
  if (args.size() > 1) require_text("pad", args[1]);
  const std::string fill = args.size() > 1 ? text_argument("pad", self, args[1]) : " ";
  if (unicode::count(fill) != 1) {
    fail(ErrorKind::type, "The fill character must be exactly one character long");
  }
  const std::int64_t missing = width - std::int64_t(self.text().length());
  if (missing <= 0) return self;
  evaluation.charge_text(std::uint64_t(missing) * fill.size());
  const std::int64_t half = missing / 2 + (missing & width & 1);
  const std::int64_t before = side == Side::both ? half : side == Side::left ? missing : 0;
  std::string text;
  for (std::int64_t i = 0; i < before; ++i) text += fill;
  text += self.string();
  for (std::int64_t i = before; i < missing; ++i) text += fill;
  return same_safety(evaluation, self, std::move(text));
}

Value zfill(Evaluation& evaluation, const Value& self, Arguments& arguments) {
  const std::int64_t missing =
      as_index(positional("zfill", arguments, 1, 1)[0]) - std::int64_t(self.text().length());
  if (missing <= 0) return self;
  evaluation.charge_text(std::uint64_t(missing));
  std::string text = self.string();
  const bool has_sign = text.starts_with('-') || text.starts_with('+');
  text.insert(has_sign ? 1 : 0, std::size_t(missing), '0');
  return same_safety(evaluation, self, std::move(text));
}

Value expandtabs(Evaluation& evaluation, const Value& self, Arguments& arguments) {
  const List bound = bind("expandtabs", arguments, {"tabsize"}, 0);
  const std::int64_t size = given(bound, 0) ? as_index(bound[0]) : 8;
  std::string text;
  std::int64_t column = 0;
  for (char c : self.string()) {
    if (c == '\t') {
      const std::int64_t spaces = size > 0 ? size - column % size : 0;
      evaluation.charge_text(std::uint64_t(spaces));
      text.append(std::size_t(spaces), ' ');
      column += spaces;
      continue;
    }
    text.push_back(c);
    if ((c & 0xc0) != 0x80) column = c == '\n' || c == '\r' ? 0 : column + 1;
  }
  return same_safety(evaluation, self, std::move(text));
}

template <bool is_prefix>
Value remove_affix(Evaluation& evaluation, const Value& self, Arguments& arguments) {
  const Value& affix = positional(is_prefix ? "removeprefix" : "removesuffix", arguments, 1, 1)[0];
  require_text(is_prefix ? "removeprefix()" : "removesuffix()", affix);
  const std::string& text = self.string();
  const std::string& part = affix.string();
  evaluation.charge(text.size());
  if (is_prefix)
    return text.starts_with(part) ? Value(text.substr(part.size()), self.text().safe) : self;
  return text.ends_with(part) ? Value(text.substr(0, text.size() - part.size()), self.text().safe)
                              : self;
}

Value format(Evaluation& evaluation, const Value& self, Arguments& arguments) {
  return brace_format(evaluation, self, arguments);
}

Value format_map(Evaluation& evaluation, const Value& self, Arguments& arguments) {
  const Value& map = positional("format_map", arguments, 1, 1)[0];
  Arguments named;
  if (!map.is(Kind::dict)) fail(ErrorKind::type, "format_map() argument must be a mapping");
  for (const auto& [key, value] : map.dict()) {
    if (key.is_string()) named.named.emplace_back(key.string(), value);
  }
  return brace_format(evaluation, self, named);
}

// Characters (numbers) to numbers, texts or none, as str.translate() takes them.
Value translate(Evaluation& evaluation, const Value& self, Arguments& arguments) {
  const Value& table = positional("translate", arguments, 1, 1)[0];
  std::string out;
  for (std::size_t i = 0; i < self.string().size();) {
    evaluation.step();
    const char32_t c = unicode::next(self.string(), i);
    const Value mapped = subscript(table, Value(std::int64_t(c)));
    if (mapped.is(Kind::missing)) {
      unicode::append(out, c);
    } else if (mapped.is(Kind::integer) && mapped.integer() >= 0 && mapped.integer() < 0x110000) {
      unicode::append(out, char32_t(mapped.integer()));
    } else if (mapped.is_string()) {
      evaluation.charge_text(mapped.string().size());
      out += mapped.string();
    } else if (!mapped.is_none()) {
      fail(ErrorKind::type, "character mapping must return integer, None or str");
    }
  }
  return same_safety(evaluation, self, std::move(out));
}

class Bytes : public Object {
 public:
  explicit Bytes(std::string bytes) : bytes_(std::move(bytes)) {}
  std::string_view type_name() const override { return "bytes"; }
  std::optional<std::size_t> length() const override { return bytes_.size(); }
  void append_repr(std::string& out, int) const override {
    const bool doubled = bytes_.find('\'') != bytes_.npos && bytes_.find('"') == bytes_.npos;
    out += doubled ? "b\"" : "b'";
    for (char c : bytes_) {
      static constexpr char kHex[] = "0123456789abcdef";
      const auto byte = static_cast<unsigned char>(c);
      if (c == '\\' || (c == '\'' && !doubled)) {
        (out += '\\') += c;
      } else if (c == '\n' || c == '\r' || c == '\t') {
        out += c == '\n' ? "\\n" : c == '\r' ? "\\r" : "\\t";
      } else if (byte >= 0x20 && byte < 0x7f) {
        out += c;
      } else {
        ((out += "\\x") += kHex[byte >> 4]) += kHex[byte & 15];
      }
    }
    out += doubled ? '"' : '\'';
  }

 private:
  std::string bytes_;
};

Value encode(Evaluation& evaluation, const Value& self, Arguments& arguments) {
  const List bound = bind("encode", arguments, {"encoding", "errors"}, 0);
  if (given(bound, 0)) require_text("encode() argument 'encoding'", bound[0]);
  const std::string encoding = given(bound, 0) ? unicode::lower(to_text(bound[0])) : "utf-8";
  if (encoding != "utf-8" && encoding != "utf8")
    fail(ErrorKind::lookup, "unknown encoding: " + encoding);
  evaluation.charge_text(self.string().size());
  return make_object<Bytes>(self.string());
}

}  // namespace

Method find_text_method(std::string_view name) {
  static constexpr NamedMethod kMethods[] = {{"split", split<false>},
                                             {"strip", strip<true, true>},
                                             {"lstrip", strip<true, false>},
                                             {"rstrip", strip<false, true>},
                                             {"replace", replace},
                                             {"join", join},
                                             {"format", format},
                                             {"rsplit", split<true>},
                                             {"splitlines", splitlines},
                                             {"partition", partition<false>},
                                             {"rpartition", partition<true>},
                                             {"removeprefix", remove_affix<true>},
                                             {"removesuffix", remove_affix<false>},
                                             {"center", pad<Side::both>},
                                             {"ljust", pad<Side::right>},
                                             {"rjust", pad<Side::left>},
                                             {"zfill", zfill},
                                             {"expandtabs", expandtabs},
                                             {"format_map", format_map},
                                             {"translate", translate},
                                             {"encode", encode}};
  if (const Method method = find_in(kMethods, name)) return method;
  if (const Method method = find_text_search_method(name)) return method;
  return find_text_case_method(name);
}

}  // namespace quire::jinja
