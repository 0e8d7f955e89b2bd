// Templates end with a text or an error; JSON that is read is written as what reads the same.

#include <string>

#include "jinja/values/json.h"
#include "tests/fuzz/targets.h"
#include "text/template/chat_template.h"

namespace quire::fuzz {

namespace {

using quire::jinja::Dict;

// Stops templates that work hard, so that many can be tried.
constexpr std::size_t kMaxSource = 4000;

const Dict& context() {
  static const Dict kContext =
      quire::jinja::parse_json(
          R"({"l": [3, 1, 2], "s": "Hello World", "d": {"b": 1, "a": null, "items": [1]}, "n": 5, "x": 2.5, "e": [],
              "u": "Straße 日本 🙂", "t": true, "nul": null, "big": 123456789012345678901234567890,
              "messages": [{"role": "system", "content": "S"}, {"role": "user", "content": [{"type": "text", "text": "U"}]},
                           {"role": "assistant", "content": "A", "tool_calls": [{"function": {"name": "f", "arguments": {"a": 1}}}]},
                           {"role": "tool", "content": "42"}],
              "tools": [{"type": "function", "function": {"name": "f", "parameters": {"type": "object"}}}]})")
          .dict();
  return kContext;
}

void try_template(const std::string& source) {
  if (source.size() > kMaxSource) return;
  try {
    const ChatTemplate chat_template = ChatTemplate::parse(source);
    (void)chat_template.render_context(context());
    ChatTemplateInput input;
    input.messages = *context().find("messages");
    input.tools = *context().find("tools");
    input.continue_final_message = source.size() % 2 == 0;
    (void)chat_template.render(input);
  } catch (const TemplateFailure& failure) {
    promise(!failure.cause().message.empty(), "a template's failure says why");
  }
}

void try_json(const std::string& json) {
  try {
    const auto value = quire::jinja::parse_json(json);
    const std::string written = quire::jinja::dump_json(value, {});
    promise(quire::jinja::dump_json(quire::jinja::parse_json(written), {}) == written,
            "what is written is read as the same");
  } catch (const Failure&) {
  }
}

}  // namespace

void jinja(std::string_view bytes) {
  const std::string input(bytes);
  try_template(input);
  try_json(input);
}

}  // namespace quire::fuzz
