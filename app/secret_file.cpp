#include "app/secret_file.h"

#include <fstream>
#include <iterator>

namespace quire {

Result<std::string> read_secret(const std::string& path) {
  if (path.empty()) return std::string();
  std::ifstream file(path, std::ios::binary);
  std::string text{std::istreambuf_iterator<char>(file), {}};
  if (!file) return Error{ErrorCode::not_found, path + " cannot be read", {}};
  constexpr const char* kBlanks = " \t\r\n";
  text.erase(text.find_last_not_of(kBlanks) + 1);
  text.erase(0, text.find_first_not_of(kBlanks));
  if (text.size() < 16)
    return Error{ErrorCode::invalid_argument, path + " must hold at least 16 characters", {}};
  return text;
}

}  // namespace quire
