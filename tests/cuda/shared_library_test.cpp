#include "cuda/runtime/shared_library.h"

#include <catch2/catch.hpp>

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

TEST_CASE("A missing library says where it was looked for", "[cuda]") {
  LibraryFunction<&absent, double(double)> root{"sqrt"};
  REQUIRE_THAT(absent().missing(), Catch::Contains("libquire_absent.so.2") &&
                                       Catch::Contains("/nowhere/libquire_absent.so.2"));
  REQUIRE_THROWS_AS(root(4.), Failure);
}

}  // namespace quire::cuda
