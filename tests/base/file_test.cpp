#include "base/file.h"

#include <sys/stat.h>

#include <catch2/catch.hpp>
#include <fstream>
#include <sstream>
#include <thread>

#include "base/error.h"
#include "tests/support/temp_path.h"

namespace quire {
namespace {

constexpr std::size_t kSize = 200'000;  // several reads

std::string letters(std::size_t size) {
  std::string text(size, 'a');
  for (std::size_t i = 0; i < size; ++i) text[i] = static_cast<char>('a' + i % 23);
  return text;
}

std::filesystem::path written(const std::string& name, const std::string& text) {
  const auto path = temp_path(name);
  std::ofstream(path, std::ios::binary) << text;
  return path;
}

ErrorCode code_of(const std::filesystem::path& file, std::size_t limit) {
  try {
    read_text_file(file, limit);
  } catch (const Failure& failure) {
    CHECK_THAT(failure.what(), Catch::Contains(file.string()));
    return failure.error().code;
  }
  return ErrorCode::internal;
}

}  // namespace

TEST_CASE("a file is read whole up to a limit that the error names", "[base][file]") {
  const std::string text = letters(kSize);
  const auto file = written("whole", text);
  CHECK(read_text_file(file, kSize) == text);
  CHECK_THROWS_WITH(read_text_file(file, kSize - 1),
                    file.string() + ": 200000 bytes, at most 199999");
  CHECK(code_of(file, kSize - 1) == ErrorCode::too_large);
  CHECK(read_text_file(written("empty", ""), 0).empty());
}

TEST_CASE("a file that is missing, a folder or a lost link is refused by name", "[base][file]") {
  const auto folder = temp_path("folder"), link = temp_path("link"), none = temp_path("none");
  std::filesystem::create_directory(folder);
  std::filesystem::create_symlink(none, link);
  CHECK(code_of(none, 100) == ErrorCode::not_found);
  CHECK(code_of(folder, 100) == ErrorCode::invalid_argument);
  CHECK_THROWS_WITH(read_text_file(link, 100), Catch::Contains("where there is nothing"));
}

TEST_CASE("a pipe with a name is read to its end, and no further than the limit",
          "[base][file]") {
  const auto pipe = temp_path("pipe");
  REQUIRE(::mkfifo(pipe.c_str(), 0600) == 0);
  const std::string text = letters(1000);
  for (const std::size_t limit : {std::size_t{1000}, std::size_t{999}}) {
    std::jthread writer([&] { std::ofstream(pipe, std::ios::binary) << text; });
    if (limit == text.size()) {
      CHECK(read_text_file(pipe, limit) == text);
    } else {
      CHECK_THROWS_WITH(read_text_file(pipe, limit), pipe.string() + ": more than 999 bytes");
    }
  }
}

TEST_CASE("a stream is read to its end up to a limit that the error names", "[base][file]") {
  const std::string text = letters(kSize);
  std::istringstream all(text), beyond(text), empty;
  CHECK(read_text(all, kSize, "standard input") == text);
  CHECK_THROWS_WITH(read_text(beyond, kSize - 1, "standard input"),
                    "standard input: more than 199999 bytes");
  CHECK(read_text(empty, 0, "standard input").empty());
}

}  // namespace quire
