#include "base/file.h"

#include <algorithm>
#include <cerrno>
#include <fstream>
#include <istream>
#include <system_error>

#include "base/error.h"

namespace quire {

namespace {

constexpr std::size_t kReadAtOnce = 64 << 10;

[[noreturn]] void refuse_unreadable(const std::string& name) {
  throw Failure(ErrorCode::invalid_argument, name + ": cannot be read");
}

// Has a size that can be asked for, unlike a pipe, as shells make of <(…).
std::string read_sized(const std::filesystem::path& file, std::size_t size, std::size_t limit) {
  if (size > limit) {
    throw Failure(ErrorCode::too_large, file.string() + ": " + std::to_string(size) +
                                            " bytes, at most " + std::to_string(limit));
  }
  std::string text(size, '\0');
  std::ifstream in(file, std::ios::binary);
  in.read(text.data(), static_cast<std::streamsize>(size));
  if (!in) refuse_unreadable(file.string());
  return text;
}

std::string read_unsized(const std::filesystem::path& file, std::size_t limit) {
  std::ifstream in(file, std::ios::binary);
  if (!in) refuse_unreadable(file.string());
  return read_text(in, limit, file.string());
}

void check_is_no_pointer(const std::filesystem::path& file, const std::string& text) {
  if (text.starts_with("version https://git-lfs")) {
    throw Failure(ErrorCode::invalid_argument,
                  file.string() +
                      ": is a pointer of Git LFS, not the file itself: run `git lfs "
                      "pull` in its folder, or `quire pull` the model");
  }
}

}  // namespace

std::string read_text_file(const std::filesystem::path& file, std::size_t limit) {
  std::error_code error;
  const auto type = std::filesystem::status(file, error).type();
  const bool is_unsized = type == std::filesystem::file_type::fifo ||
                          type == std::filesystem::file_type::character;
  const auto size = is_unsized ? 0 : std::filesystem::file_size(file, error);
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
  std::string text = is_unsized ? read_unsized(file, limit) : read_sized(file, size, limit);
  check_is_no_pointer(file, text);
  return text;
}

std::string read_text(std::istream& in, std::size_t limit, const std::string& name) {
  std::string text;
  while (in) {
    const std::size_t have = text.size(), more = std::min(kReadAtOnce, limit - have) + 1;
    text.resize(have + more);
    in.read(text.data() + have, static_cast<std::streamsize>(more));
    text.resize(have + static_cast<std::size_t>(in.gcount()));
    if (text.size() > limit) {
      throw Failure(ErrorCode::too_large,
                    name + ": more than " + std::to_string(limit) + " bytes");
    }
  }
  if (in.bad()) refuse_unreadable(name);
  return text;
}

}  // namespace quire
