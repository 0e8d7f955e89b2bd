#include "tests/engine/wire/sample_messages.h"

#include <chrono>
#include <cstddef>
#include <optional>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

#include "base/fields.h"

namespace quire::test {
namespace {

// Gives every field of a message another value than its default, and each a value of its own.
class Filler {
 public:
  template <class T>
  void operator()(int, T& value) {
    fill(value);
  }

 private:
  void fill(bool& value) { value = !value; }
  void fill(std::string& value) { value = std::string("s\0", 2) + std::to_string(++last_); }
  void fill(Clock::time_point& value) { value = Clock::time_point(std::chrono::seconds(++last_)); }
  template <class T>
  void fill(T& value) requires std::is_floating_point_v<T> {
    value = static_cast<T>(++last_) + T{0.25};
  }
  template <class T>
  void fill(T& value) requires std::is_enum_v<T> {
    const int last = num_enumerators<T>() - 1;
    value = static_cast<T>(static_cast<int>(value) == last ? 0 : last);
  }
  // Every second one negative, and of 64 bits all in use.
  template <class T>
  void fill(T& value) requires(std::is_integral_v<T> && !std::is_same_v<T, bool>) {
    value = static_cast<T>(++last_ % 2 == 0 ? -last_ : last_);
    if (sizeof(T) == 8) value = static_cast<T>(value * (std::int64_t{1} << 40));
  }
  template <class Tag, class Int>
  void fill(StrongId<Tag, Int>& id) {
    fill(id.value);
  }
  template <class T>
  void fill(std::optional<T>& value) {
    fill(value.emplace());
  }
  template <class T>
  void fill(std::vector<T>& values) {
    for (int i = 0; i < 2; ++i) fill(values.emplace_back());
  }
  template <HasFields T>
  void fill(T& message) {
    for_each_field(*this, message);
  }

  int last_ = 0;
};

template <class Variant>
std::vector<Variant> samples() {
  std::vector<Variant> samples;
  Filler filler;
  const auto add = [&](auto message) {
    for_each_field(filler, message);
    samples.emplace_back(std::move(message));
  };
  [&]<std::size_t... I>(std::index_sequence<I...>) {
    (add(std::variant_alternative_t<I, Variant>()), ...);
  }
  (std::make_index_sequence<std::variant_size_v<Variant>>());
  return samples;
}

}  // namespace

std::vector<Command> sample_commands() { return samples<Command>(); }
std::vector<EngineEvent> sample_events() { return samples<EngineEvent>(); }

}  // namespace quire::test
