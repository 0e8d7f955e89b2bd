// Where instructions stand in a prompt, and which are left out of it: of chats, and of Anthropic's
// Messages, which have them between turns.

#include <catch2/catch.hpp>
#include <string>

#include "openapi/dto_json.h"
#include "openapi/responses.h"
#include "server/chat_prompt_text.h"
#include "server/template_messages.h"

using namespace quire;

namespace {

const std::string kShows =
    "{% for m in messages %}[{{ m.role }}:{{ m.content }}]{% endfor %}";
const std::string kSystemFirst =
    "{% for m in messages %}{% if m.role == 'system' and not loop.first %}"
    "{{ raise_exception('first') }}{% endif %}[{{ m.role }}:{{ m.content }}]{% endfor %}";
const std::string kParts =
    "{% for m in messages %}[{{ m.role }}{% for c in m.content %}|{{ c.text }}{% endfor %}]"
    "{% endfor %}";

std::string prompt(const Result<openapi::ChatCompletionRequest>& request,
                   const std::string& source = kShows) {
  REQUIRE(request.has_value());
  const ChatTemplate chat_template = ChatTemplate::parse(source);
  const auto text = chat_prompt_text(*request, &chat_template, {});
  return text ? *text : "error: " + text.error().detail;
}

std::string of_messages(const std::string& members, const std::string& source = kShows) {
  return prompt(openapi::parse_messages(R"({"model":"tiny","max_tokens":8,)" + members + "}"),
                source);
}

std::string of_chat(const std::string& messages, const std::string& source = kShows) {
  return prompt(openapi::parse_chat_completion(R"({"messages":[)" + messages + "]}"), source);
}

const std::string kInline =
    R"("messages":[{"role":"user","content":"a"},{"role":"system","content":"quill"},)"
    R"({"role":"user","content":"b"}])";

}  // namespace

TEST_CASE("system turns of Messages come first for templates that want them so") {
  CHECK(of_messages(kInline) == "[user:a][system:quill][user:b]");
  CHECK(of_messages(kInline, kSystemFirst) == "[system:quill][user:a][user:b]");
  CHECK(of_messages(R"("system":"top",)" + kInline, kSystemFirst) ==
        "[system:top\n\nquill][user:a][user:b]");
  CHECK(of_messages(kInline, "{{ raise_exception('never') }}").find("never") != std::string::npos);
}

TEST_CASE("instructions that a template would leave out come first") {
  const std::string turns =
      "{% for m in messages %}{% if m.role != 'system' %}[{{ m.role }}:{{ m.content }}]"
      "{% endif %}{% endfor %}";
  const std::string of_first =
      "{% if messages[0].role == 'system' %}<{{ messages[0].content | trim }}>{% endif %}" + turns;
  const std::string of_last =
      "{% set ns = namespace(s='') %}{% for m in messages %}{% if m.role == 'system' %}"
      "{% set ns.s = m.content %}{% endif %}{% endfor %}<{{ ns.s }}>" + turns;
  CHECK(of_messages(R"("system":" top ",)" + kInline, of_first) == "<top \n\nquill>[user:a][user:b]");
  CHECK(of_messages(R"("system":"top",)" + kInline, of_last) == "<top\n\nquill>[user:a][user:b]");
  CHECK(of_chat(R"({"role":"user","content":"a"},{"role":"developer","content":"inkpot"})", of_first) ==
        "<inkpot>[user:a]");
  CHECK(of_chat(R"({"role":"user","content":"a"},{"role":"system","content":"inkpot"})", of_first) ==
        "[user:a]");
  CHECK(of_messages(kInline, turns) == "[user:a][user:b]");
  // Where others say the same, and in the next turn, too.
  const std::string asked = R"({"role":"user","content":"what is an inkpot?"},)"
                            R"({"role":"developer","content":"inkpot"})";
  CHECK(of_chat(asked, of_first) == "<inkpot>[user:what is an inkpot?]");
  CHECK(of_chat(asked + R"(,{"role":"assistant","content":"an inkpot"})", of_first) ==
        "<inkpot>[user:what is an inkpot?][assistant:an inkpot]");
  // A template that knows developers, of which it shows one, as gpt-oss's.
  const std::string of_developer =
      "{% if messages[0].role in ['system', 'developer'] %}<{{ messages[0].content }}>{% endif %}"
      "{% for m in messages %}{% if m.role == 'user' %}[{{ m.content }}]{% endif %}{% endfor %}";
  CHECK(of_chat(R"({"role":"system","content":"s"},{"role":"developer","content":"d"},)"
                R"({"role":"user","content":"a"})",
                of_developer) == "<s\n\nd>[a]");
  CHECK(of_messages(kInline, "{% for m in messages %}[{{ m.content | upper }}]{% endfor %}") ==
        "[A][QUILL][B]");
}

TEST_CASE("a chat's own system messages stay where they are, a developer's do not have to") {
  const std::string system =
      R"({"role":"user","content":"a"},{"role":"system","content":"s"})";
  CHECK(of_chat(system, kSystemFirst).find("error: ") == 0);
  const std::string developer =
      R"({"role":"system","content":"s"},{"role":"user","content":"a"},)"
      R"({"role":"developer","content":"d"})";
  CHECK(of_chat(developer) == "[system:s][user:a][system:d]");
  CHECK(of_chat(developer, kSystemFirst) == "[system:s\n\nd][user:a]");
}

TEST_CASE("Claude Code's own line is no instruction, wherever it comes") {
  const std::string line = "x-anthropic-billing-header: cch=1;";
  const std::string user = R"({"role":"user","content":"a"})";
  const auto chat = [&](const std::string& content, const std::string& source = kShows) {
    return of_chat(R"({"role":"system","content":)" + content + "}," + user, source);
  };
  CHECK(chat('"' + line + R"(\nbe brief")") == "[system:be brief][user:a]");
  CHECK(chat('"' + line + '"') == "[system:][user:a]");
  CHECK(chat(R"([{"type":"text","text":")" + line + R"("},{"type":"text","text":"b"},"c"])") ==
        "[system:b\nc][user:a]");
  CHECK(chat(R"([{"type":"text","text":")" + line + R"("},{"type":"text","text":"b"},"c"])",
             kParts) == "[system|b|c][user|a]");
  CHECK(chat(R"("about )" + line + '"') == "[system:about " + line + "][user:a]");
  CHECK(of_chat(R"({"role":"user","content":")" + line + R"("})") == "[user:" + line + "]");

  const std::string turn = R"("messages":[)" + user + "]";
  CHECK(of_messages(R"("system":")" + line + R"(\nbe brief",)" + turn) ==
        "[system:be brief][user:a]");
  CHECK(of_messages(R"("system":[{"type":"text","text":")" + line + R"("}],)" + turn) ==
        "[user:a]");
  CHECK(of_messages(R"("messages":[{"role":"system","content":")" + line + R"("},)" + user + "]") ==
        "[user:a]");
  CHECK(of_messages(R"("messages":[{"role":"system","content":[{"type":"text","text":")" + line +
                    R"("},{"type":"text","text":"b"}]},)" + user + "]") ==
        "[system:b][user:a]");
}

TEST_CASE("an empty instruction of Messages is none") {
  const std::string turn = R"("messages":[{"role":"user","content":"a"}])";
  CHECK(of_messages(R"("system":"",)" + turn) == "[user:a]");
  CHECK(of_messages(R"("system":[{"type":"text","text":""}],)" + turn) == "[user:a]");
  CHECK(of_messages(R"("system":[{"type":"text","text":""},{"type":"text","text":"b"}],)" + turn) ==
        "[system:b][user:a]");
}

TEST_CASE("calls whose arguments are no object are calls without any") {
  const std::string walks =
      "{% for m in messages %}[{{ m.role }}{% for c in m.tool_calls or [] %}"
      "{% for k, v in c.function.arguments.items() %} {{ k }}={{ v }}{% endfor %}{% endfor %}]"
      "{% endfor %}";
  const auto called = [&](const std::string& arguments) {
    return of_chat(R"({"role":"user","content":"a"},{"role":"assistant","tool_calls":[{"id":"c",)"
                   R"("function":{"name":"f","arguments":)" + arguments + "}}]}",
                   walks);
  };
  CHECK(called(R"("{\"a\":1}")") == "[user][assistant a=1]");
  for (const char* broken : {R"("{\"a\":")", R"("[]")", R"("7")", R"("null")", R"("")"}) {
    INFO(broken);
    CHECK(called(broken) == "[user][assistant]");
  }
}

TEST_CASE("many instructions are not copied for each of them") {
  openapi::ChatCompletionRequest request;
  constexpr int kCount = 100'000;  // pairs of 500 bytes: 2.5 TB
  for (int i = 0; i < kCount; ++i)
    request.messages.push_back({.role = "developer", .content = std::string(500, 'a')});
  CHECK(template_messages(request, kShows, ContentFormat::text).list().size() == 1);
}

TEST_CASE("a chat has a role or two of its own, not hundreds") {
  std::string messages;
  for (int i = 0; i < 100; ++i)
    messages += (i == 0 ? "" : ",") + std::string(R"({"role":"r)") + std::to_string(i) +
                R"(","content":"a"})";
  CHECK(of_chat(messages).find("error: messages: at most 64 roles") == 0);
}
