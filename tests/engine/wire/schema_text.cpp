#include "tests/engine/wire/schema_text.h"

#include <boost/pfr.hpp>
#include <chrono>
#include <optional>
#include <set>
#include <string_view>
#include <type_traits>
#include <utility>
#include <variant>
#include <vector>

#include "base/fields.h"
#include "engine/wire/messages.h"

namespace quire::test {
namespace {

constexpr std::string_view kHead =
    "// What crosses the line between a front end and an engine in another process. Printed from\n"
    "// the lists of fields beside the structs (engine/wire/messages.h and what it includes) by\n"
    "//   build/release/tests/engine/wire/print_wire_schema > engine/wire/messages.proto\n"
    "// and compared by a test: a number that changes here breaks engines of other versions.\n"
    "// Every field has presence: an absent one means the struct's default, which need not be\n"
    "// zero. Times are nanoseconds on the sender's steady clock.\n"
    "syntax = \"proto3\";\n"
    "package quire.wire;\n";

template <class T>
struct Type {};

template <class T>
constexpr std::string_view spelled_type() {
  return __PRETTY_FUNCTION__;
}

template <class T>
std::string name_of_type(Type<T>) {
  const std::string_view spelling = spelled_type<T>();
  const std::string_view rest = spelling.substr(spelling.find("T = ") + 4);
  const std::string_view name = rest.substr(0, rest.find_first_of(";]"));
  return std::string(name.substr(name.rfind(':') + 1));
}
std::string name_of_type(Type<TokenBias>) { return "TokenBias"; }

// Prints a message after all that it contains.
class Printer {
 public:
  std::string text = std::string(kHead);
  std::vector<MessageCount> counts;

  template <HasFields T>
  std::string type(Type<T> message) {
    const std::string name = name_of_type(message);
    if (!seen_.insert(name).second) return name;
    std::string body;
    std::size_t number = 0;
    std::size_t fields = 0;
    const auto add = [&]<auto Member>() {
      ++number;
      if constexpr (std::is_null_pointer_v<decltype(Member)>) {
        body += "  reserved " + std::to_string(number) + ";\n";
      } else {
        using Value = std::remove_cvref_t<decltype(std::declval<T>().*Member)>;
        std::string member_name{spelling_of<Member>()};
        if (std::is_same_v<T, TokenBias>) member_name = number == 1 ? "token" : "bias";
        body += "  " + field(Type<Value>()) + " " + member_name + " = " + std::to_string(number) +
                ";\n";
        ++fields;
      }
    };
    [&]<auto... Members>(FieldList<Members...>) { (add.template operator()<Members>(), ...); }
    (typename FieldsOf<T>::type());
    text += "\nmessage " + name + " {\n" + body + "}\n";
    if constexpr (std::is_aggregate_v<T>)
      counts.push_back({name, boost::pfr::tuple_size_v<T>, fields});
    return name;
  }

  template <class... T>
  void envelope(const std::string& name, Type<std::variant<T...>>) {
    std::string body;
    int number = 0;
    ((body += "    " + type(Type<T>()) + " " + snake(name_of_type(Type<T>())) + " = " +
              std::to_string(++number) + ";\n"),
     ...);
    text += "\nmessage " + name + " {\n  oneof kind {\n" + body + "  }\n}\n";
  }

 private:
  template <class T>
  std::string field(Type<T> value) {
    return "optional " + type(value);
  }
  template <class T>
  std::string field(Type<std::optional<T>>) {
    return field(Type<T>());
  }
  template <class T>
  std::string field(Type<std::vector<T>>) {
    return "repeated " + type(Type<T>());
  }

  std::string type(Type<bool>) { return "bool"; }
  std::string type(Type<std::int32_t>) { return "int32"; }
  std::string type(Type<std::uint32_t>) { return "uint32"; }
  std::string type(Type<std::int64_t>) { return "int64"; }
  std::string type(Type<std::uint64_t>) { return "uint64"; }
  std::string type(Type<float>) { return "float"; }
  std::string type(Type<double>) { return "double"; }
  std::string type(Type<std::string>) { return "string"; }
  std::string type(Type<Clock::time_point>) { return "int64"; }
  template <class Tag, class Int>
  std::string type(Type<StrongId<Tag, Int>>) {
    return type(Type<Int>());
  }
  template <class E>
  std::string type(Type<E> value) requires std::is_enum_v<E> {
    const std::string name = name_of_type(value);
    if (!seen_.insert(name).second) return name;
    text += "\nenum " + name + " {\n";
    [&]<int... I>(std::integer_sequence<int, I...>) {
      ((text += "  " + name + "_" + std::string(spelling_of<static_cast<E>(I)>()) + " = " +
                std::to_string(I) + ";\n"),
       ...);
    }
    (std::make_integer_sequence<int, num_enumerators<E>()>());
    text += "}\n";
    return name;
  }

  static std::string snake(const std::string& pascal) {
    std::string snake;
    for (const char c : pascal) {
      if (c >= 'A' && c <= 'Z' && !snake.empty()) snake += '_';
      snake += static_cast<char>(c >= 'A' && c <= 'Z' ? c - 'A' + 'a' : c);
    }
    return snake;
  }

  std::set<std::string> seen_;
};

Printer print_all() {
  Printer printer;
  printer.envelope("Command", Type<Command>());
  printer.envelope("EngineEvent", Type<EngineEvent>());
  return printer;
}

}  // namespace

std::string schema_text() { return print_all().text; }
std::vector<MessageCount> message_counts() { return print_all().counts; }

}  // namespace quire::test
