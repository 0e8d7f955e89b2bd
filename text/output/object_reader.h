#pragma once
// Reads a call that is one JSON object, byte by byte: its name, and its arguments as they come.

#include <optional>
#include <string>
#include <utility>

#include "text/output/dialect.h"
#include "text/output/json_scanner.h"

namespace quire {

class ObjectReader {
 public:
  // The keys must outlive this. `only_calls`: a member that no call has breaks the object, and so
  // does a call without arguments; where nothing else distinguishes calls from an answer in JSON.
  ObjectReader(const ObjectKeys& keys, bool only_calls) : keys_(keys), only_calls_(only_calls) {}

  enum class Status : std::uint8_t { more, done, broken };
  Status push(char c);

  // The name is known and the arguments have begun.
  bool ready() const { return has_name() && has_arguments_; }
  bool has_name() const { return name_.has_value() && !name_->empty(); }
  const std::string& name() const { return *name_; }
  // JSON text that has not been taken yet.
  std::string take_arguments() { return std::exchange(arguments_, {}); }

 private:
  enum class Expect : std::uint8_t {
    object,
    key_or_end,
    key,
    in_key,
    colon,
    value,
    comma_or_end,
    nothing
  };
  enum class Role : std::uint8_t { name, arguments, other };

  bool in_outer(char c);
  bool end_key();
  Status in_value(char c);
  bool end_value();
  bool end_arguments();
  bool finish();

  const ObjectKeys& keys_;
  bool only_calls_;
  Expect expect_ = Expect::object;
  std::string text_;  // of the key or of a value that is needed as a whole
  JsonScanner scanner_;
  Role role_ = Role::other;
  char first_ = 0;  // of the value; 0: it has not begun
  std::optional<std::string> name_;
  bool seen_arguments_ = false;
  bool has_unknown_ = false;  // a member that no call has
  bool has_arguments_ = false;  // and they are known to be an object
  std::string arguments_;
};

}  // namespace quire
