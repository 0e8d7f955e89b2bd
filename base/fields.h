#pragma once
// A struct's members as a list that stands beside them; what walks the list (the wire's encoding,
// its .proto text, samples for tests) needs no change when a member is added:
//   struct Hello { EngineId engine; std::string version;
//                  using Fields = FieldList<&Hello::engine, &Hello::version>; };
// A member's place in the list, from 1, is its number on the wire. New members go to the end of the
// list, wherever they stand in the struct; the place of one that is gone becomes kRetired.

#include <cstddef>
#include <string_view>
#include <type_traits>
#include <utility>

namespace quire {

template <auto... Members>
struct FieldList {};
inline constexpr std::nullptr_t kRetired = nullptr;

// Specialised for structs that cannot hold a list.
template <class T>
struct FieldsOf {};
template <class T>
requires requires { typename T::Fields; }
struct FieldsOf<T> {
  using type = typename T::Fields;
};
template <class T>
concept HasFields = requires {
  typename FieldsOf<std::remove_const_t<T>>::type;
};

// visitor(number, member) for every member, in the list's order.
template <class Visitor, HasFields T>
void for_each_field(Visitor& visitor, T& object) {
  const auto visit = [&]<auto Member>(int number) {
    if constexpr (!std::is_null_pointer_v<decltype(Member)>) visitor(number, object.*Member);
  };
  [&]<auto... Members>(FieldList<Members...>) {
    int number = 0;
    (visit.template operator()<Members>(++number), ...);
  }
  (typename FieldsOf<std::remove_const_t<T>>::type());
}

namespace detail {
template <auto Value>
constexpr std::string_view spelled() {
  return __PRETTY_FUNCTION__;  // "… [with auto Value = &quire::Hello::engine; …]" or a close
                               // relative
}
constexpr std::string_view last_name(std::string_view spelling) {
  const std::string_view value = spelling.substr(spelling.find("Value = ") + 8);
  const std::string_view name = value.substr(0, value.find_first_of(";]"));
  return name.substr(name.rfind(':') + 1);
}
}  // namespace detail

// "engine" of &Hello::engine, "stop" of FinishReason::stop.
template <auto Value>
constexpr std::string_view spelling_of() {
  return detail::last_name(detail::spelled<Value>());
}

// Of an enum whose enumerators are 0, 1, 2, …; at most 32.
template <class E>
constexpr int num_enumerators() {
  const auto is_named = []<int... I>(std::integer_sequence<int, I...>) {
    // A value without a name is spelled as a cast, "(quire::FinishReason)7".
    return ((spelling_of<static_cast<E>(I)>().find(')') == std::string_view::npos ? 1 : 0) + ...);
  };
  return is_named(std::make_integer_sequence<int, 32>());
}

}  // namespace quire
