#pragma once
// The members that two structs call the same, found by their lists (base/fields.h): what copies or
// writes those needs no change when both get one more.

#include "base/fields.h"

namespace quire {

namespace detail {
// visitor(name, a's member, b's member) where B's list, or the part of it given, has Member's name.
template <auto Member, class Visitor, class A, class B, auto... Others>
void visit_same(Visitor& visitor, A& a, B& b, FieldList<Others...>) {
  const auto visit = [&]<auto Other>() {
    if constexpr (!std::is_null_pointer_v<decltype(Other)>) {
      constexpr std::string_view name = spelling_of<Member>();
      if constexpr (name == spelling_of<Other>()) visitor(name, a.*Member, b.*Other);
    }
  };
  (visit.template operator()<Others>(), ...);
}
}  // namespace detail

// For each such member of a's list, in its order.
template <class Visitor, class A, class B, auto... Members, class OfB>
void for_each_same_field(Visitor& visitor, A& a, FieldList<Members...>, B& b, OfB of_b) {
  const auto visit = [&]<auto Member>() {
    if constexpr (!std::is_null_pointer_v<decltype(Member)>)
      detail::visit_same<Member>(visitor, a, b, of_b);
  };
  (visit.template operator()<Members>(), ...);
}

}  // namespace quire
