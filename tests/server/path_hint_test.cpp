#include "server/http/path_hint.h"

#include <array>
#include <catch2/catch.hpp>
#include <string>

using quire::path_hint;

TEST_CASE("a path that is not there leads to the one that was meant", "[server][path_hint]") {
  constexpr std::array<std::string_view, 6> kKnown{"/v1/chat/completions", "/v1/completions",
                                                   "/v1/models", "/v1/models/*", "/tokenize", "/"};
  const auto hint = [&](std::string_view path) {
    return path_hint(path, kKnown).value_or("nothing");
  };
  CHECK(hint("/chat/completions") == "/v1/chat/completions");
  CHECK(hint("/v1/v1/chat/completions") == "/v1/chat/completions");
  CHECK(hint("/v1/models/") == "/v1/models");
  CHECK(hint("//v1//models") == "/v1/models");
  CHECK(hint("/V1/Chat/Completions") == "/v1/chat/completions");
  CHECK(hint("/v1/tokenize") == "/tokenize");
  CHECK(hint("/v1/chat/completion") == "/v1/chat/completions");
  CHECK(hint("/chat/completion") == "/v1/chat/completions");
  CHECK(hint("/v1/responses") == "nothing");
  CHECK(hint("/favicon.ico") == "nothing");
  CHECK(hint("") == "nothing");
  CHECK(hint(std::string(2000, '/')) == "nothing");
}
