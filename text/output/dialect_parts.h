#pragma once
// What the lists of dialects are written with; only they include it.

#include <algorithm>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "text/output/dialect.h"

namespace quire {

inline CallPart lit(std::string text, int optional = 0) {
  return {CallPart::Kind::literal, std::move(text), optional};
}
inline CallPart part(CallPart::Kind kind) { return {kind}; }

// The arguments one by one (parameter_dialects.cpp).
std::vector<Dialect> parameter_dialects();

// Harmony's.
std::vector<std::string> channel_markers();

template <class T>
const T* find_named(const std::vector<T>& all, std::string_view name) {
  for (const T& one : all) {
    if (one.name == name) return &one;
    if (std::find(one.aliases.begin(), one.aliases.end(), name) != one.aliases.end()) return &one;
  }
  return nullptr;
}

}  // namespace quire
