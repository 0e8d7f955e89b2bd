#include "server/http/path_hint.h"

#include <algorithm>
#include <cctype>

#include "base/nearest.h"

namespace quire {

namespace {

// In lower case, with single slashes and none at the end.
std::string tidied(std::string_view path) {
  std::string tidy;
  for (const char c : path) {
    if (c == '/' && tidy.ends_with('/')) continue;
    tidy += static_cast<char>(std::tolower(static_cast<unsigned char>(c)));
  }
  while (tidy.ends_with('/')) tidy.pop_back();
  return tidy;
}

std::string without_version(std::string path) {
  while (path.starts_with("/v1/")) path.erase(0, 3);
  return path;
}

}  // namespace

std::optional<std::string> path_hint(std::string_view path,
                                     std::span<const std::string_view> known) {
  const std::string bare = without_version(tidied(path));
  if (bare.empty()) return std::nullopt;
  for (const std::string& candidate : {"/v1" + bare, bare}) {
    if (std::ranges::find(known, candidate) != known.end()) return candidate;
  }
  for (const std::string& candidate : {tidied(path), "/v1" + bare}) {
    if (const auto near = nearest(candidate, known)) return std::string(*near);
  }
  return std::nullopt;
}

}  // namespace quire
