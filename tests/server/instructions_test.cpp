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
    R"("messages":[{"role":"user","content":"a"},{"role":"system","content":"s"},)"
    R"({"role":"user","content":"b"}])";

}  // namespace

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
