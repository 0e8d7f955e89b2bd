#pragma once
// A model's chat template: messages and tools in, the prompt's text out, byte for byte what Hugging
// Face transformers makes of them. Parsed once; immutable afterwards, so any thread may render.

#include <ctime>
#include <memory>
#include <optional>
#include <string>
#include <string_view>

#include "jinja/error.h"
#include "jinja/values/dict.h"
#include "jinja/values/value.h"
#include "text/template/content_format.h"

namespace quire {

// Either the text or why there is none.
struct RenderResult {
  std::string text;
  std::optional<TemplateError> error;
  explicit operator bool() const { return !error; }
};

// jinja::parse_json(request_text) makes these of JSON. Whatever is None is given to the template as
// none.
struct ChatTemplateInput {
  jinja::Value messages;  // list of dicts
  jinja::Value tools;
  jinja::Value documents;
  bool add_generation_prompt = false;
  bool continue_final_message = false;
  jinja::Dict kwargs;  // further names: enable_thinking, custom ones; win over special tokens of
                       // the same name
  std::optional<std::tm> now;  // what strftime_now reads; the local time where absent
};

class ChatTemplate {
 public:
  // Throws TemplateFailure (invalid_argument) with the line of a syntax error. The special tokens
  // are names that the template may use.
  static ChatTemplate parse(std::string source, jinja::Dict special_tokens = {});
  // A model's: bos_token and the like, as its tokenizer names them, or of a GGUF file.
  static jinja::Dict special_tokens(const std::string& model);
  // chat_template.jinja, else "chat_template" of tokenizer_config.json: a string, or a list of
  // named templates of which "tool_use" serves requests with tools and "default" the others.
  // Or a GGUF file's "tokenizer.chat_template" and "….tool_use".
  // The model's special tokens become names. Throws Failure; not_found where the model has no
  // template.
  static ChatTemplate load(const std::string& model_dir);

  RenderResult render(const ChatTemplateInput& input) const;
  // Only the names in `context`, no defaults and nothing done around the template.
  RenderResult render_context(const jinja::Dict& context, std::optional<std::tm> now = {}) const;

  // What it takes a message's content as, by itself; where the model has two templates, the one for
  // such requests.
  ContentFormat content_format(bool has_tools) const;

  // The templates' text, one after the other.
  const std::string& source() const;

  ChatTemplate(ChatTemplate&&) noexcept;
  ChatTemplate& operator=(ChatTemplate&&) noexcept;
  ~ChatTemplate();

 private:
  struct Parts;
  static std::unique_ptr<Parts> gguf_parts(const std::string& model);
  static std::unique_ptr<Parts> folder_parts(const std::string& model_dir);
  explicit ChatTemplate(std::unique_ptr<const Parts> parts);
  std::unique_ptr<const Parts> parts_;
};

}  // namespace quire
