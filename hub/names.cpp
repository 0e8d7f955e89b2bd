#include "hub/names.h"

#include <algorithm>

#include "base/error.h"

namespace quire::hub {

namespace {

constexpr std::size_t kMaxName = 96;
constexpr std::size_t kMaxRevision = 200;
constexpr std::size_t kMaxPath = 1000;

bool is_word(char c) {
  return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '_';
}

// An organization or a model.
bool is_part(std::string_view part) {
  const auto may_stand = [](char c) { return is_word(c) || c == '-' || c == '.'; };
  return !part.empty() && part.size() <= kMaxName && std::ranges::all_of(part, may_stand) &&
         is_word(part.front()) && part.back() != '.' && part.back() != '-' &&
         part.find("..") == part.npos && part.find("--") == part.npos;
}

bool is_repo(std::string_view text) {
  const std::size_t slash = text.find('/');
  return slash != text.npos && is_part(text.substr(0, slash)) && is_part(text.substr(slash + 1));
}

// A branch, a tag or a commit.
bool is_revision(std::string_view text) {
  const auto may_stand = [](char c) { return is_word(c) || c == '-' || c == '.' || c == '/'; };
  return text.size() <= kMaxRevision && std::ranges::all_of(text, may_stand) &&
         text.front() != '-' && is_safe_path(text);
}

}  // namespace

ModelName ModelName::parse(std::string_view text) {
  const std::size_t at = text.find('@');
  ModelName name;
  name.repo = text.substr(0, at);
  if (at != text.npos) name.revision = text.substr(at + 1);
  if (!is_repo(name.repo)) {
    throw Failure(ErrorCode::invalid_argument,
                  "\"" + std::string(text.substr(0, 200)) +
                      "\" is not a model's name; org/name[@revision] is");
  }
  if (name.revision.empty() || !is_revision(name.revision)) {
    throw Failure(
        ErrorCode::invalid_argument,
        "\"" + name.revision.substr(0, 200) + "\" is not a revision: a branch, a tag or a commit");
  }
  return name;
}

std::string ModelName::text() const { return revision == "main" ? repo : repo + "@" + revision; }

bool looks_like_name(std::string_view text) { return is_repo(text.substr(0, text.find('@'))); }

bool is_commit(std::string_view text) {
  return text.size() == 40 && std::ranges::all_of(text, [](char c) {
           return (c >= '0' && c <= '9') || (c >= 'a' && c <= 'f');
         });
}

bool is_safe_path(std::string_view path) {
  if (path.empty() || path.size() > kMaxPath) return false;
  const auto is_odd = [](unsigned char c) { return c < 0x20 || c == 0x7F || c == '\\'; };
  if (std::ranges::any_of(path, is_odd)) return false;
  while (true) {
    const std::size_t slash = path.find('/');
    const std::string_view part = path.substr(0, slash);
    if (part.empty() || part == "." || part == "..") return false;
    if (slash == path.npos) return true;
    path.remove_prefix(slash + 1);
  }
}

}  // namespace quire::hub
