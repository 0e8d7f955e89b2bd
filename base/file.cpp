#include "base/file.h"

#include <cerrno>
#include <fstream>
#include <system_error>

#include "base/error.h"

namespace quire {

std::string read_text_file(const std::filesystem::path& file, std::size_t limit) {
  std::error_code error;
  const auto size = std::filesystem::file_size(file, error);
  if (std::error_code ignored; error == std::errc::no_such_file_or_directory &&
                               std::filesystem::is_symlink(file, ignored)) {
    throw Failure(ErrorCode::not_found, file.string() + ": is a link to " +
                                            std::filesystem::read_symlink(file, ignored).string() +
                                            ", where there is nothing");
  }
  if (error) {
    const bool missing = error == std::errc::no_such_file_or_directory;
    throw Failure(missing ? ErrorCode::not_found : ErrorCode::invalid_argument,
                  file.string() + ": " + error.message());
  }
  if (size > limit) {
    throw Failure(ErrorCode::too_large, file.string() + ": " + std::to_string(size) +
                                            " bytes, at most " + std::to_string(limit));
  }
  std::string text(size, '\0');
  std::ifstream in(file, std::ios::binary);
  in.read(text.data(), static_cast<std::streamsize>(size));
  if (!in) throw Failure(ErrorCode::invalid_argument, file.string() + ": cannot be read");
  if (text.starts_with("version https://git-lfs")) {
    throw Failure(ErrorCode::invalid_argument,
                  file.string() +
                      ": is a pointer of Git LFS, not the file itself: run `git lfs "
                      "pull` in its folder, or `quire pull` the model");
  }
  return text;
}

}  // namespace quire
