#include "engine/wire/config_difference.h"

#include <type_traits>
#include <utility>

#include "base/fields.h"

namespace quire {
namespace {

template <HasFields T>
std::string difference(const T& a, const T& b) {
  std::string found;
  const auto compare = [&]<auto Member>() {
    if constexpr (!std::is_null_pointer_v<decltype(Member)>) {
      if (!found.empty()) return;
      const auto& in_a = a.*Member;
      const auto& in_b = b.*Member;
      const std::string name{spelling_of<Member>()};
      if constexpr (HasFields<std::remove_cvref_t<decltype(in_a)>>) {
        const std::string inner = difference(in_a, in_b);
        if (!inner.empty()) found = name + "." + inner;
      } else if (in_a != in_b) {
        found = name;
      }
    }
  };
  [&]<auto... Members>(FieldList<Members...>) { (compare.template operator()<Members>(), ...); }
  (typename FieldsOf<T>::type());
  return found;
}

}  // namespace

std::string first_difference(const EngineConfig& a, const EngineConfig& b) {
  return difference(a, b);
}

}  // namespace quire
