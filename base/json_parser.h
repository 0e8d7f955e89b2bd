#pragma once
// From text to the nodes of a JsonDocument, in one pass without recursion.

#include "base/json.h"

namespace quire {

class JsonParser {
 public:
  // Resolves the escapes in document.text_ on the way. Throws Failure.
  explicit JsonParser(JsonDocument& document)
      : document_(document), text_(document.text_), nodes_(document.nodes_) {}
  void parse();

 private:
  using Kind = Json::Kind;
  struct Open {
    std::uint32_t node;
    bool is_object;
  };

  [[noreturn]] void fail(const std::string& problem, std::size_t at) const;
  void check_utf8();
  void skip_space();
  bool skip(std::string_view word);
  bool skip(char c);
  void parse_value();
  void parse_name();
  void open(Kind kind, char close);
  void close();
  void add(Kind kind, std::size_t begin, std::size_t size);
  void parse_string();
  std::size_t parse_escape(std::size_t out);
  std::uint32_t parse_hex();
  void parse_number();

  JsonDocument& document_;
  std::string& text_;
  std::vector<JsonDocument::Node>& nodes_;
  std::vector<Open> stack_;
  std::size_t at_ = 0;
  std::ptrdiff_t line_ = 1;
  std::size_t line_begin_ = 0;
};

}  // namespace quire
