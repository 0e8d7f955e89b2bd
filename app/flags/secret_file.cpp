#include "app/flags/secret_file.h"

#include <filesystem>
#include <fstream>
#include <system_error>

namespace quire {

namespace {

constexpr std::size_t kMostBytes = 4096;

}  // namespace

Result<std::string> read_secret(const std::string& path) {
  if (path.empty()) return std::string();
  // A pipe will do, as shells make of <(…); it has no size to ask for.
  std::error_code ignored;
  if (std::filesystem::is_directory(path, ignored))
    return Error{ErrorCode::invalid_argument, path + " is a folder, not a file", {}};
  std::ifstream file(path, std::ios::binary);
  if (!file) return Error{ErrorCode::not_found, path + " cannot be read", {}};
  std::string text(kMostBytes + 1, '\0');
  file.read(text.data(), static_cast<std::streamsize>(text.size()));
  if (file.bad()) return Error{ErrorCode::not_found, path + " cannot be read", {}};
  text.resize(static_cast<std::size_t>(file.gcount()));
  if (text.size() > kMostBytes) {
    return Error{ErrorCode::too_large,
                 path + " is longer than " + std::to_string(kMostBytes) + " bytes, and no secret",
                 {}};
  }
  constexpr const char* kBlanks = " \t\r\n";
  text.erase(text.find_last_not_of(kBlanks) + 1);
  text.erase(0, text.find_first_not_of(kBlanks));
  if (text.size() < 16)
    return Error{ErrorCode::invalid_argument, path + " must hold at least 16 characters", {}};
  return text;
}

}  // namespace quire
