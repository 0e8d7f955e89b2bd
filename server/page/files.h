#pragma once
// The files of the page as the build found them beside this one.

#include <span>
#include <string_view>

namespace quire {

struct PageFile {
  std::string_view name;
  std::string_view text;
};

std::span<const PageFile> page_files();

}  // namespace quire
