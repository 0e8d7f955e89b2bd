#pragma once
// Names as the Hugging Face Hub has them, and what of a stranger's names may become a path here.

#include <string>
#include <string_view>

namespace quire::hub {

struct ModelName {
  std::string repo;  // org/name
  std::string revision = "main";

  // org/name[@revision]; throws Failure where it is something else.
  static ModelName parse(std::string_view text);
  std::string text() const;
};

// Whether it has the form of a name, so that a folder that is not there may have been meant as one.
bool looks_like_name(std::string_view text);

// 40 hexadecimal digits.
bool is_commit(std::string_view text);

// A file of a repository: relative, and nowhere above it.
bool is_safe_path(std::string_view path);

}  // namespace quire::hub
