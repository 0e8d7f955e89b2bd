// What of a stranger's names and addresses is taken, and what is refused.

#include <catch2/catch.hpp>
#include <filesystem>
#include <fstream>
#include <random>

#include "base/error.h"
#include "hub/names.h"
#include "hub/pull.h"
#include "net/url.h"
#include "tests/support/temp_path.h"

using namespace quire;
using net::Url;

TEST_CASE("a model's name has an organization, a name and perhaps a revision", "[hub]") {
  const auto plain = hub::ModelName::parse("Qwen/Qwen3-0.6B");
  CHECK(plain.repo == "Qwen/Qwen3-0.6B");
  CHECK(plain.revision == "main");
  CHECK(hub::ModelName::parse("a/b@refs/pr/3").revision == "refs/pr/3");
  for (const char* bad : {"", "a", "/", "a/", "/b", "a/b/c", "../b", "a/..", "a/.b", "a/b--c", "a/b@", "a/b@../x",
                          "a/b@/x", "a/b@x//y", "a/b@-x", "a b/c", "a/b@x y", "a/b@x\ny", "a/b\\c"}) {
    INFO(bad);
    CHECK_THROWS_AS(hub::ModelName::parse(bad), Failure);
  }
}

TEST_CASE("a path of a repository stays inside of it", "[hub]") {
  for (const char* good : {"config.json", "sub/model-1.safetensors", ".gitattributes", "a..b/c"}) {
    INFO(good);
    CHECK(hub::is_safe_path(good));
  }
  for (const char* bad : {"", "/", "/a", "a/", "a//b", ".", "..", "../a", "a/../b", "a/./b", "a\\b", "a\nb"}) {
    INFO(bad);
    CHECK_FALSE(hub::is_safe_path(bad));
  }
  CHECK_FALSE(hub::is_safe_path(std::string_view("a\0b", 3)));
}

TEST_CASE("what serving reads of a repository is what is pulled", "[hub]") {
  for (const char* needed : {"config.json", "added_tokens.json", "special_tokens_map.json",
                             "additional_chat_templates/tool_use.jinja"}) {
    INFO(needed);
    CHECK(hub::is_needed(needed));
  }
  for (const char* other : {"README.md", "pytorch_model.bin", "original/config.json"}) {
    INFO(other);
    CHECK_FALSE(hub::is_needed(other));
  }
}

TEST_CASE("one file of weights is preferred to an index that was left beside it", "[hub]") {
  const std::filesystem::path folder = temp_path("quire_hub_test");
  std::filesystem::create_directories(folder);
  const auto index = [&](const std::string& map) {
    std::ofstream(folder / "model.safetensors.index.json") << R"({"weight_map":)" + map + "}";
  };
  std::ofstream(folder / "config.json") << "{}";
  const auto names = [&](const hub::RepoInfo& info) {
    std::string all;
    for (const hub::RepoFile& file : hub::weights_of(info, folder)) all += file.path + " ";
    return all;
  };
  hub::RepoInfo both;
  for (const char* path : {"model.safetensors.index.json", "model.safetensors", "model-1.safetensors"})
    both.files.emplace_back().path = path;
  hub::RepoInfo shards = both;
  shards.files.erase(shards.files.begin() + 1);
  index(R"({"a":"model-1.safetensors"})");
  CHECK(names(both) == "model.safetensors ");
  CHECK(names(shards) == "model-1.safetensors ");
  index(R"({"a":"model-9.safetensors"})");
  CHECK(names(both) == "model.safetensors ");
  CHECK_THROWS_WITH(names(shards), Catch::Contains("model-9.safetensors"));
  CHECK_FALSE(hub::is_complete(folder));
  index("{}");
  CHECK(names(both) == "model.safetensors ");
  CHECK_THROWS_WITH(names(shards), Catch::Contains("index.json: names no weights"));
  CHECK_FALSE(hub::is_complete(folder));
  std::filesystem::remove_all(folder);
}

TEST_CASE("shards without an index are weights where all that are numbered are there", "[hub]") {
  using Names = std::vector<std::string>;
  const Names both = {"model-00001-of-00002.safetensors", "model-00002-of-00002.safetensors"};
  CHECK(hub::numbered_shards({"config.json", both[1], "a.safetensors", both[0]}) ==
        Names{both[1], both[0]});
  CHECK(hub::numbered_shards({both[1]}).empty());
  CHECK(hub::numbered_shards({both[0], both[1], "x-00001-of-00002.safetensors"}).empty());
  CHECK(hub::numbered_shards({"consolidated-00001-of-00001.safetensors",
                              "sub/model-00001-of-00001.safetensors"})
            .empty());

  const std::filesystem::path folder = temp_path("quire_hub_shards_test");
  std::filesystem::create_directories(folder);
  hub::RepoInfo info;
  std::ofstream(folder / "config.json") << "{}";
  for (const std::string& name : both) {
    CHECK_FALSE(hub::is_complete(folder));
    std::ofstream(folder / name) << "x";
    info.files.emplace_back().path = name;
  }
  CHECK(hub::is_complete(folder));
  CHECK(hub::weights_of(info, folder).size() == 2);
  std::filesystem::remove_all(folder);
}

TEST_CASE("addresses of servers are read, and others refused in words", "[net]") {
  const Url url = Url::parse("https://host.example:8443/v1?x=1#y");
  CHECK(url.tls);
  CHECK(url.host == "host.example");
  CHECK(url.port == "8443");
  CHECK(url.target == "/v1?x=1");
  CHECK(Url::parse("http://[::1]:80").host_header() == "[::1]");
  CHECK(Url::parse("unix:/run/q.sock").with_path("/health").text() == "unix:/run/q.sock/health");
  CHECK(url.resolve("/other").text() == "https://host.example:8443/other");
  CHECK(url.resolve("//x/y").text() == "https://x/y");
  CHECK_FALSE(url.same_origin(Url::parse("https://host.example/v1")));
  for (const char* bad : {"", "host", "ftp://x", "http://", "http://x:0", "http://x:70000", "http://x:y", "http://[::1",
                          "http://u@x", "http://x/a b", "http://x/\r\nEvil: 1", "unix:"}) {
    INFO(bad);
    CHECK_THROWS_AS(Url::parse(bad), Failure);
  }
  CHECK_THROWS_AS(url.resolve("relative"), Failure);
  CHECK(net::percent_encode_path("a b/\xC3\xA4%.json") == "a%20b/%C3%A4%25.json");
}

TEST_CASE("changed addresses and names are read or refused, nothing else", "[net][hub]") {
  std::mt19937 random(7);
  const std::string seeds[] = {"https://[::1]:8443/v1?x=1#y", "org/name@refs/pr/1", "unix:/a/b"};
  for (int i = 0; i < 30'000; ++i) {
    std::string text = seeds[random() % 3];
    for (unsigned n = random() % 4 + 1; n > 0; --n) text[random() % text.size()] = static_cast<char>(random());
    text.resize(random() % (text.size() + 1));
    try {
      const std::string shown = Url::parse(text).text();
      CHECK(shown.find('\n') == std::string::npos);
    } catch (const Failure&) {
    }
    try {
      const auto name = hub::ModelName::parse(text);
      CHECK((hub::is_safe_path(name.repo) && hub::is_safe_path(name.revision)));
    } catch (const Failure&) {
    }
  }
}
