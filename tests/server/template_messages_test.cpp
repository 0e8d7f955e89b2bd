#include "server/template_messages.h"

#include <catch2/catch.hpp>

#include "text/template/chat_template.h"

using namespace quire;
using openapi::ChatCompletionRequest;

namespace {

// Shows what it is given; `known` stands in it as words that templates compare roles with.
std::string showing(std::string_view known) {
  return std::string("{# ") + std::string(known) +
         " #}{% for m in messages %}[{{ m.role }}:{{ m.content }}]{% endfor %}";
}

ChatCompletionRequest chat(
    std::initializer_list<std::pair<std::string_view, std::string_view>> messages) {
  ChatCompletionRequest request;
  for (const auto& [role, content] : messages) {
    auto& message = request.messages.emplace_back();
    message.role = role;
    message.content = std::string(content);
  }
  return request;
}

RenderResult render(const ChatCompletionRequest& request, const std::string& source) {
  ChatTemplateInput input;
  const ChatTemplate chat_template = ChatTemplate::parse(source);
  input.messages = template_messages(request, source, chat_template.content_format(false));
  return chat_template.render(input);
}

std::string rendered(const ChatCompletionRequest& request, const std::string& source) {
  const RenderResult result = render(request, source);
  REQUIRE(result);
  return result.text;
}

// Knows two roles and shows no others.
const std::string kDrops =
    "{% for m in messages %}{% if m.role in ['user', 'assistant'] %}{{ m.content }}"
    "{% endif %}{% endfor %}";

Result<void> checked(const ChatCompletionRequest& request, const std::string& source) {
  const auto again = [&](const ChatCompletionRequest& one) { return render(one, source); };
  return check_roles(request, source, again);
}

}  // namespace

TEST_CASE("a developer's message is the system's where the template does not name it") {
  const std::string source = showing("'system' 'user' 'assistant'");
  CHECK(rendered(chat({{"developer", "be brief"}, {"user", "hi"}}), source) ==
        "[system:be brief][user:hi]");
  CHECK(rendered(chat({{"system", "a"}, {"developer", "b"}, {"user", "hi"}}), source) ==
        "[system:a\n\nb][user:hi]");
  CHECK(rendered(chat({{"system", "a"}, {"user", "hi"}, {"developer", "b"}}), source) ==
        "[system:a][user:hi][system:b]");
}

TEST_CASE("beside calls gpt-oss's templates get thought and text as one thought") {
  const std::string source =
      "{% for m in messages %}[{{ m.content }}|{{ message.thinking if false else m.thinking }}]{% endfor %}";
  auto request = chat({{"assistant", "so"}, {"assistant", "see"}, {"user", "hi"}});
  for (int i : {0, 1}) request.messages[static_cast<std::size_t>(i)].reasoning = "hm";
  request.messages[1].tool_calls.push_back({.id = "a", .function = {.name = "f", .arguments = "{}"}});
  CHECK(rendered(request, source) == "[so|hm][|hm\n\nsee][hi|]");
  CHECK(rendered(request, "{% for m in messages %}[{{ m.content }}|{{ m.thinking }}]{% endfor %}") ==
        "[so|hm][see|hm][hi|]");
}

TEST_CASE("a template that names the developer gets its messages as they are") {
  for (const char* quoted : {"'developer'", "\"developer\""}) {
    CHECK(rendered(chat({{"system", "a"}, {"developer", "b"}, {"user", "hi"}}), showing(quoted)) ==
          "[system:a][developer:b][user:hi]");
  }
  CHECK(rendered(chat({{"developer", "b"}, {"user", "hi"}}), showing("a developer wrote it")) ==
        "[system:b][user:hi]");
}

TEST_CASE("system messages alone stay apart, but in responses, where all make the first") {
  const std::string source = showing("'system'");
  auto request = chat({{"system", "a"}, {"system", "b"}, {"user", "hi"}, {"developer", "c"}});
  CHECK(rendered(chat({{"system", "a"}, {"system", "b"}, {"user", "hi"}}), source) ==
        "[system:a][system:b][user:hi]");
  request.joins_system = true;
  CHECK(rendered(request, source) == "[system:a\n\nb\n\nc][user:hi]");
  CHECK(request.messages.size() == 4);
}

TEST_CASE("a role that the template would leave out is refused") {
  const auto request = chat({{"user", "hi"}, {"robot", " beep "}});
  const auto refused = checked(request, kDrops);
  REQUIRE(refused.has_error());
  CHECK(refused.error().field == "messages[1].role");
  CHECK(refused.error().detail.find("\"robot\" is not a role that") == 0);
  CHECK(checked(request, showing("")).has_value());
  CHECK(checked(request, kDrops + "{# 'robot' goes elsewhere #}").has_value());
}

TEST_CASE("a message that is left out is refused though its words stand elsewhere in the prompt") {
  const auto first = checked(chat({{"user", "yes"}, {"critic", "yes"}, {"user", "quireword0x"}}), kDrops);
  REQUIRE(first.has_error());
  CHECK(first.error().field == "messages[1].role");
  CHECK(checked(chat({{"critic", "a"}}), kDrops + "<assistant>").has_error());
  CHECK(checked(chat({{"user", "yes"}, {"critic", ""}}), kDrops).has_error());
  CHECK(checked(chat({{"user", "yes"}, {"critic", "yes"}, {"poet", ""}}), showing("")).has_value());
}

TEST_CASE("a template that refuses other words of such a message has read it") {
  const std::string strict =
      "{% for m in messages %}{% if m.content != 'yes' %}{{ raise_exception('no') }}{% endif %}"
      "{% endfor %}";
  CHECK(checked(chat({{"user", "yes"}, {"critic", "yes"}}), strict).has_value());
}
