// Nobody shuts others out: neither from the queue, nor by its limits.

#include <catch2/catch.hpp>

#include "server/http/fair_share.h"
#include "tests/support/http_client.h"
#include "tests/support/test_server.h"

using namespace quire;
using namespace quire::test;

namespace {

// SHA-256 of alpha and of beta.
const char* const kAlpha = "8ed3f6ad685b959ead7022518e1af76cd816f8e8ec7ccdda1ed4018e8f2223f8";
const char* const kBeta = "f44e64e75f3948e9f73f8dfa94721c4ce8cbb4f265c4790c702b2d41cfbf2753";
const char* const kFirst = "X-Api-Key: alpha\r\n";
const char* const kSecond = "X-Api-Key: beta\r\n";

TestServerOptions with_keys(const std::string& limits_of_alice) {
  TestServerOptions options;
  options.config.named_keys = parse_key_file("alice " + std::string(kAlpha) + " " + limits_of_alice +
                                             "\nbob " + kBeta)
                                  .value();
  return options;
}

}  // namespace

TEST_CASE("alone a client may have all the room; others then get a share", "[server][fairness]") {
  FairShare shares;
  const auto now = FairShare::Clock::now();
  std::vector<FairShare::Held> hog;
  for (int i = 0; i < 100; ++i) {
    REQUIRE(shares.allows(1, 1, 100 - i, now));
    hog.emplace_back(shares, 1);
  }
  shares.turned_away(1, now);  // by itself: no reason to hold back
  CHECK(shares.allows(1, 1, 1, now));
  shares.turned_away(2, now);
  CHECK_FALSE(shares.allows(1, 1, 1, now));
  CHECK(shares.allows(2, 1, 1, now));
  CHECK(shares.allows(3, 1, 1, now));
  hog.resize(79);
  CHECK(shares.allows(1, 1, 21, now));  // four fifths, and the rest is free
  hog.resize(100);
  CHECK(shares.allows(1, 1, 1, now + std::chrono::seconds(31)));
}

TEST_CASE("the engine is told who asks, by the key's name or else by the address",
          "[server][fairness]") {
  std::mutex mutex;
  std::vector<std::uint64_t> clients;
  const auto note = [&](TestServerOptions& options) {
    options.engine.rejects = [&](const AddRequest& request) {
      const std::lock_guard guard(mutex);
      clients.push_back(request.client);
      return false;
    };
  };
  const std::string body = R"({"prompt":"x","max_tokens":1,"n":2})";
  auto keyed = with_keys("");
  note(keyed);
  {
    TestServer server(std::move(keyed));
    for (const char* key : {kFirst, kSecond, kFirst}) {
      REQUIRE(post(server.port(), "/v1/completions", body, key).status == 200);
    }
  }
  REQUIRE(clients.size() == 6);
  CHECK(clients[0] == clients[1]);
  CHECK(clients[0] != clients[2]);
  CHECK(clients[0] == clients[4]);
  clients.clear();
  TestServerOptions open;
  note(open);
  TestServer server(std::move(open));
  REQUIRE(post(server.port(), "/v1/completions", body).status == 200);
  REQUIRE(post(server.port(), "/v1/completions", body).status == 200);
  REQUIRE(clients.size() == 4);
  CHECK(clients[0] == clients[3]);
  CHECK(clients[0] != 0);
}

TEST_CASE("a full queue lets in who holds nothing before who holds it all", "[server][fairness]") {
  auto options = with_keys("");
  options.engine_config.scheduler.max_num_seqs = 4;
  options.engine_config.scheduler.max_num_queued_reqs = 12;
  options.engine.eos.reset();
  options.engine.step_time = std::chrono::milliseconds(2);
  TestServer server(std::move(options));
  const auto hog = [](int n) {
    return R"({"prompt":"x","max_tokens":2000,"ignore_eos":true,"n":)" + std::to_string(n) + "}";
  };
  HttpClient first(server.port());
  auto second = std::make_unique<HttpClient>(server.port());
  first.send(post_request("/v1/completions", hog(14), kFirst));
  second->send(post_request("/v1/completions", hog(2), kFirst));
  REQUIRE(eventually([&] { return server.engine().num_live() == 16; }));
  const std::string small = R"({"prompt":"x","max_tokens":1})";
  CHECK(post(server.port(), "/v1/completions", small, kSecond).status == 503);
  second.reset();
  REQUIRE(eventually([&] { return server.engine().num_live() == 14; }));
  const auto refused = post(server.port(), "/v1/completions", small, kFirst);
  CHECK(refused.status == 503);
  CHECK(refused.headers.count("retry-after") == 1);
  CHECK(refused.body.find("its share of the queue") != std::string::npos);
  CHECK(post(server.port(), "/v1/completions", small, kSecond).status == 200);
}

TEST_CASE("vectors come out of a client's share too", "[server][fairness]") {
  auto options = with_keys("");
  options.engine_config.scheduler.max_num_seqs = 14;
  options.engine_config.scheduler.max_num_queued_reqs = 2;
  options.engine.ready.pooling = {.task = PoolingTask::embed, .size = 2};
  options.engine.step_time = std::chrono::milliseconds(2);
  TestServer server(std::move(options));
  const auto inputs = [](int count, int tokens) {
    std::string ids = "1", texts;
    for (int i = 1; i < tokens; ++i) ids += ",1";
    for (int i = 0; i < count; ++i) texts += (i == 0 ? "[" : ",[") + ids + "]";
    return R"({"input":[)" + texts + "]}";
  };
  std::vector<std::unique_ptr<HttpClient>> hogs;
  for (int i = 0; i < 2; ++i) {
    hogs.push_back(std::make_unique<HttpClient>(server.port()));
    hogs.back()->send(post_request("/v1/embeddings", inputs(i == 0 ? 14 : 2, 3000), kFirst));
  }
  REQUIRE(eventually([&] { return server.engine().num_live() == 16; }));
  CHECK(post(server.port(), "/v1/embeddings", inputs(1, 1), kSecond).status == 503);
  hogs.pop_back();
  REQUIRE(eventually([&] { return server.engine().num_live() == 14; }));
  const auto refused = post(server.port(), "/v1/embeddings", inputs(1, 1), kFirst);
  CHECK(refused.status == 503);
  CHECK(refused.body.find("its share of the queue") != std::string::npos);
  CHECK(post(server.port(), "/v1/embeddings", inputs(1, 1), kSecond).status == 200);
}

TEST_CASE("a key has so many requests a minute, and pays for its tokens", "[server][fairness]") {
  TestServer requests(with_keys("requests-per-minute=2"));
  const std::string body = R"({"prompt":"x","max_tokens":3,"ignore_eos":true})";
  for (const int status : {200, 200, 429}) {
    CHECK(post(requests.port(), "/v1/completions", body, kFirst).status == status);
  }
  CHECK(post(requests.port(), "/v1/completions", body, kSecond).status == 200);

  TestServer tokens(with_keys("tokens-per-minute=60"));
  const std::string many = R"({"prompt":"x","max_tokens":90,"ignore_eos":true})";
  CHECK(post(tokens.port(), "/v1/completions", many, kFirst).status == 200);
  const auto refused = post(tokens.port(), "/v1/completions", body, kFirst);
  CHECK(refused.status == 429);
  const int wait = std::stoi(refused.headers.at("retry-after"));
  CHECK((wait > 25 && wait <= 40));  // 90 and the prompt's, of 60 a minute
}

TEST_CASE("priority is for keys that may set it", "[server][fairness]") {
  auto options = with_keys("priority");
  options.engine_config.scheduler.policy = SchedulingPolicy::priority;
  TestServer server(std::move(options));
  const std::string body = R"({"prompt":"x","max_tokens":1,"priority":-5})";
  CHECK(post(server.port(), "/v1/completions", body, kFirst).status == 200);
  const auto refused = post(server.port(), "/v1/completions", body, kSecond);
  CHECK(refused.status == 400);
  CHECK(refused.body.find("this key may not set it") != std::string::npos);
}
