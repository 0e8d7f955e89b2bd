#include "cuda/runtime/shared_library.h"

#include <unistd.h>

#include <catch2/catch.hpp>
#include <cstdlib>
#include <filesystem>
#include <string>

#include "base/error.h"

namespace quire::cuda {
namespace {

const SharedLibrary& present() {
  static const SharedLibrary library({"libquire_absent.so.2", "libm.so.6"}, {});
  return library;
}
const SharedLibrary& absent() {
  static const SharedLibrary library({"libquire_absent.so.2"}, {"/nowhere"});
  return library;
}

}  // namespace

TEST_CASE("The first library there is gives its functions by name", "[cuda]") {
  LibraryFunction<&present, double(double, double)> power{"pow"};
  LibraryFunction<&present, void()> unknown{"quire_no_such_function"};
  REQUIRE(present().missing().empty());
  REQUIRE(power(2., 10.) == 1024.);
  REQUIRE(power(3., 2.) == 9.);
  REQUIRE_THROWS_WITH(unknown(), Catch::Contains("quire_no_such_function"));
}

TEST_CASE("Folders of Python packages are found where they are installed", "[cuda]") {
  namespace fs = std::filesystem;
  const fs::path root =
      fs::temp_directory_path() / ("quire-packages-" + std::to_string(::getpid()));
  const fs::path folder = root / "lib/python3.11/site-packages/nvidia/nccl/lib";
  fs::create_directories(folder);
  ::setenv("VIRTUAL_ENV", root.c_str(), 1);
  const auto found = python_package_folders("nvidia/nccl/lib");
  ::unsetenv("VIRTUAL_ENV");
  fs::remove_all(root);
  REQUIRE_FALSE(found.empty());
  CHECK(found.front() == folder);
}

TEST_CASE("A missing library says where it was looked for", "[cuda]") {
  LibraryFunction<&absent, double(double)> root{"sqrt"};
  REQUIRE_THAT(absent().missing(), Catch::Contains("libquire_absent.so.2") &&
                                       Catch::Contains("/nowhere/libquire_absent.so.2"));
  REQUIRE_THROWS_AS(root(4.), Failure);
}

}  // namespace quire::cuda
