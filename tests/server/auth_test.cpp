#include "server/http/auth.h"

#include <catch2/catch.hpp>

using quire::Auth;

TEST_CASE("without keys everyone may", "[server][auth]") {
  CHECK(Auth({}).allows(""));
  CHECK(Auth({}).allows("Bearer whatever"));
}

TEST_CASE("any of the keys opens, and nothing else does", "[server][auth]") {
  const Auth auth({"first", "second"});
  CHECK(auth.allows("Bearer first"));
  CHECK(auth.allows("bearer second"));
  for (const char* wrong : {"", "Bearer", "Bearer ", "Bearer firs", "Bearer firstt", "Basic first",
                            "first", "Bearer  first", "Bearer first second"}) {
    INFO(wrong);
    CHECK_FALSE(auth.allows(wrong));
  }
}

TEST_CASE("a key may stand alone, and none is no key", "[server][auth]") {
  const Auth auth({"first"});
  CHECK(auth.knows("first"));
  CHECK_FALSE(auth.knows("second"));
  CHECK_FALSE(auth.knows(""));
  CHECK_FALSE(Auth({}).knows(""));
  CHECK_FALSE(Auth({""}).knows(""));
}
