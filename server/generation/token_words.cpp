#include "server/generation/token_words.h"

#include "base/utf8.h"

namespace quire {

namespace {

bool ends_inside_character(std::string_view bytes) {
  const char* const end = bytes.data() + bytes.size();
  for (const char* at = bytes.data(); at != end;) {
    const Utf8Step step = utf8_step(at, end);
    if (step.kind == Utf8Step::incomplete) return true;
    at += step.length;
  }
  return false;
}

bool is_text(std::string_view bytes) {
  const char* const end = bytes.data() + bytes.size();
  for (const char* at = bytes.data(); at != end;) {
    const Utf8Step step = utf8_step(at, end);
    if (step.kind != Utf8Step::valid) return false;
    at += step.length;
  }
  return true;
}

}  // namespace

// A character that is broken off is no part of the alternatives to what would complete it.
std::string TokenWords::next(std::string_view bytes) const {
  if (held_.empty() || is_text(bytes))
    return ends_inside_character(bytes) ? std::string() : std::string(bytes);
  std::string all = held_ + std::string(bytes);
  return ends_inside_character(all) ? std::string() : all;
}

void TokenWords::advance(std::string_view bytes) {
  if (is_text(bytes)) return held_.clear();
  held_ += bytes;
  if (!ends_inside_character(held_)) held_.clear();
}

}  // namespace quire
