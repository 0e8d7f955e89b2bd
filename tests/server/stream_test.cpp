#include <catch2/catch.hpp>

#include "tests/support/http_client.h"
#include "tests/support/json_pointer.h"
#include "tests/support/test_server.h"

using namespace quire;
using namespace quire::test;
using namespace std::chrono_literals;

namespace {

constexpr const char* kPath = "/v1/chat/completions";

std::string unquoted(const std::string& json) {
  return json == "absent" ? "" : json.substr(1, json.size() - 2);
}

// Endless, a step every so often.
TestServerOptions endless(std::chrono::microseconds step = 1000us) {
  TestServerOptions options;
  options.engine.eos.reset();
  options.engine.step_time = step;
  return options;
}

const std::string kEndless = R"("stream":true,"ignore_eos":true,"max_tokens":4000)";

}  // namespace

TEST_CASE("a stream begins with the role, ends with the reason, the usage and [DONE]",
          "[server][stream]") {
  TestServer server(answering("The answer is 19."));
  const auto reply = post(server.port(), kPath,
                          chat_body(R"("stream":true,"stream_options":{"include_usage":true})"));
  REQUIRE(reply.status == 200);
  CHECK(reply.headers.at("content-type").starts_with("text/event-stream"));
  const auto events = events_of(reply.body);
  REQUIRE(events.size() >= 4);
  CHECK(pointer(events[0], "/choices/0/delta") == R"({"role":"assistant","content":""})");
  CHECK(pointer(events[0], "/choices/0/finish_reason") == "null");
  std::string text;
  for (std::size_t i = 0; i + 2 < events.size(); ++i) {
    text += unquoted(pointer(events[i], "/choices/0/delta/content"));
    CHECK(pointer(events[i], "/object") == "\"chat.completion.chunk\"");
    CHECK(pointer(events[i], "/id") == pointer(events[0], "/id"));
    CHECK(pointer(events[i], "/created") == pointer(events[0], "/created"));
    CHECK(pointer(events[i], "/usage") == "absent");
  }
  CHECK(text == "The answer is 19.");
  const auto& last = events[events.size() - 3];
  CHECK(pointer(last, "/choices/0/finish_reason") == "\"stop\"");
  CHECK(pointer(last, "/choices/0/stop_reason") == "null");
  const auto& usage = events[events.size() - 2];
  CHECK(pointer(usage, "/choices") == "[]");
  CHECK(pointer(usage, "/usage/completion_tokens") ==
        std::to_string(tiny_tokenizer().encode("The answer is 19.", false).size() + 1));
  CHECK(events.back() == "[DONE]");
}

TEST_CASE("every choice of a stream has its own beginning and end", "[server][stream]") {
  TestServer server(answering("short answer"));
  const auto reply = post(server.port(), kPath, chat_body(R"("stream":true,"n":3)"));
  std::map<std::string, std::string> texts;
  int ends = 0;
  const auto events = events_of(reply.body);
  for (const auto& event : events) {
    if (event == "[DONE]") continue;
    const auto index = pointer(event, "/choices/0/index");
    texts[index] += unquoted(pointer(event, "/choices/0/delta/content"));
    ends += pointer(event, "/choices/0/finish_reason") == "\"stop\"";
  }
  CHECK(events.back() == "[DONE]");
  CHECK(ends == 3);
  CHECK(texts == std::map<std::string, std::string>{
                     {"0", "short answer"}, {"1", "short answer"}, {"2", "short answer"}});
}

TEST_CASE("tool calls stream as OpenAI's clients put them together", "[server][stream]") {
  TestServer server(
      answering("<tool_call>\n{\"name\": \"f\", \"arguments\": {\"x\": 1}}\n</tool_call>"));
  const auto reply = post(
      server.port(), kPath,
      chat_body(
          R"("stream":true,"tools":[{"type":"function","function":{"name":"f","parameters":{}}}])"));
  std::string name, arguments, id, finish;
  for (const auto& event : events_of(reply.body)) {
    if (event == "[DONE]") continue;
    const std::string call = "/choices/0/delta/tool_calls/0";
    name += unquoted(pointer(event, call + "/function/name"));
    id += unquoted(pointer(event, call + "/id"));
    arguments += unquoted(pointer(event, call + "/function/arguments"));
    const auto reason = pointer(event, "/choices/0/finish_reason");
    if (reason != "null") finish = reason;
  }
  CHECK(name == "f");
  CHECK_FALSE(id.empty());
  CHECK(arguments == R"({\"x\": 1})");
  CHECK(finish == "\"tool_calls\"");
}

TEST_CASE("continuous usage counts up in every chunk", "[server][stream]") {
  TestServer server(answering("one two three four"));
  const auto reply = post(
      server.port(), kPath,
      chat_body(
          R"("stream":true,"stream_options":{"include_usage":true,"continuous_usage_stats":true})"));
  std::int64_t before = 0;
  for (const auto& event : events_of(reply.body)) {
    if (event == "[DONE]") continue;
    const auto count = std::stoll(pointer(event, "/usage/completion_tokens"));
    CHECK(count >= before);
    before = count;
  }
  CHECK(before ==
        static_cast<std::int64_t>(tiny_tokenizer().encode("one two three four", false).size()) + 1);
}

TEST_CASE("an error before the first token is a status, one after it an event",
          "[server][stream]") {
  TestServerOptions rejecting;
  rejecting.engine.rejects = [](const AddRequest&) { return true; };
  TestServer early(std::move(rejecting));
  CHECK(post(early.port(), kPath, chat_body(R"("stream":true)")).status >= 400);

  TestServerOptions dying = endless();
  dying.engine.dies_after_steps = 20;
  TestServer late(std::move(dying));
  const auto reply = post(late.port(), kPath, chat_body(kEndless));
  CHECK(reply.status == 200);
  const auto events = events_of(reply.body);
  REQUIRE(events.size() >= 3);
  CHECK(pointer(events[events.size() - 2], "/error/code") != "absent");
  CHECK(events.back() == "[DONE]");
}

TEST_CASE("a client that leaves frees its place in the engine", "[server][stream]") {
  TestServer server(endless());
  {
    HttpClient client(server.port());
    client.send(post_request(kPath, chat_body(kEndless)));
    REQUIRE_FALSE(client.receive_some().empty());
    CHECK(server.engine().num_live() == 1);
  }
  CHECK(eventually([&] { return server.engine().num_live() == 0; }));
  CHECK(server.engine().num_aborted() == 1);
  {
    HttpClient client(server.port());
    client.send(post_request(kPath, chat_body(R"("n":4,"ignore_eos":true,"max_tokens":4000)")));
    CHECK(eventually([&] { return server.engine().num_live() == 4; }));
  }
  CHECK(eventually([&] { return server.engine().num_live() == 0; }));
  CHECK(eventually([&] { return get(server.port(), "/load").body == R"({"server_load":0})"; }));
  CHECK(
      get(server.port(), "/metrics").body.find(R"(finished_reason="abort",model_name="tiny"} 5)") !=
      std::string::npos);
}

TEST_CASE("a slow reader holds back its own stream and no other", "[server][stream]") {
  TestServer server(endless(0us));
  HttpClient slow(server.port());
  slow.set_receive_buffer(4096);
  slow.send(post_request(kPath, chat_body(R"("n":8,)" + kEndless)));
  std::string all = slow.receive_some();
  REQUIRE_FALSE(all.empty());
  const auto quick = post(server.port(), kPath, chat_body(R"("max_tokens":50,"ignore_eos":true)"));
  CHECK(pointer(quick.body, "/usage/completion_tokens") == "50");
  CHECK(eventually([&] { return server.engine().num_live() == 0; }));  // the engine did not wait
  // And nothing is lost for the one who takes its time.
  while (all.find("[DONE]") == std::string::npos) {
    const auto more = slow.receive_some();
    REQUIRE_FALSE(more.empty());
    all += more;
  }
  std::size_t ends = 0;
  for (auto at = all.find("\"length\""); at != std::string::npos;
       at = all.find("\"length\"", at + 1))
    ++ends;
  CHECK(ends == 8);
}

TEST_CASE("many streams at once all end whole", "[server][stream]") {
  TestServer server(answering("The answer is 19."));
  std::vector<std::thread> clients;
  std::atomic<int> whole = 0;
  for (int i = 0; i < 16; ++i) {
    clients.emplace_back([&] {
      HttpClient client(server.port());
      for (int round = 0; round < 5; ++round) {  // on one connection
        client.send(post_request(kPath, chat_body(R"("stream":true)")));
        const auto reply = client.receive();
        std::string text;
        for (const auto& event : events_of(reply->body)) {
          if (event != "[DONE]") text += unquoted(pointer(event, "/choices/0/delta/content"));
        }
        whole += text == "The answer is 19.";
      }
    });
  }
  for (auto& client : clients) client.join();
  CHECK(whole == 80);
  CHECK(server.engine().num_live() == 0);
}
