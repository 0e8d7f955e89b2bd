#pragma once
// How a family of models writes tool calls and thoughts, as data: one automaton (output_parser.h)
// reads all of them, and a grammar that makes a model call a tool is built from the same lines.
// Immutable; any thread.

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace quire {

// A call is written as a row of parts.
struct CallPart {
  enum class Kind : std::uint8_t {
    literal,     // `text`
    name,        // the function's name, bare
    id,          // the call's id, bare
    note,        // a bare word without meaning
    number,      // of the call among others, without meaning
    object,      // a JSON object that holds name and arguments
    json,        // the arguments, a JSON object
    keywords,    // the arguments as Python writes them, up to and with the closing parenthesis
    parameters,  // the arguments one by one, each as CallFormat::parameter says
  };
  Kind kind = Kind::literal;
  // As the family's template writes it; when read, white space around it is free.
  std::string text{};
  int optional = 0;  // of a literal: it and the parts after it, this many in all, may be left out
};

// <parameter=KEY>VALUE</parameter> and its kin: open KEY key_end [ATTRIBUTE attribute_end]
// [value_begin] VALUE close.
struct ParameterFormat {
  std::string open, key_end;
  std::string attribute_end{};  // empty: no attribute; otherwise "true" says that it is a string
  bool attribute_is_type = false;  // it is the value's JSON type, string among them
  std::string value_begin{};
  std::string close{};
  bool own_lines = false;  // a line break after the opening and before the closing belongs to them
};

// Members of the object of CallPart::Kind::object.
struct ObjectKeys {
  std::string name = "name";
  std::vector<std::string> arguments = {"arguments"};  // the first is what the family writes
};

enum class CallIds : std::uint8_t {
  random,        // chatcmpl-tool-…
  nine_letters,  // what Mistral's templates insist on
  written,       // as the model wrote it in its name or id part
};

// begin open CALL (separator CALL)* close end
struct CallFormat {
  // Any of these opens a row of calls. One that is also the first part of a call stands for it.
  std::vector<std::string> begin{};
  bool starts_answer = false;  // without a marker, where the answer begins with a call
  std::string open{};
  std::vector<CallPart> call{};
  std::string separator{};
  bool row_per_call = false;  // a family that writes each call as a row of its own
  std::string close{};
  std::vector<std::string> end{};  // any of these; empty: nothing

  ObjectKeys keys{};
  ParameterFormat parameter{};
  std::string name_prefix{};  // functions.NAME
  bool name_index = false;    // NAME:0
  CallIds ids = CallIds::random;
};

struct ReasoningFormat {
  std::string name;
  std::vector<std::string> aliases{};  // further names of --reasoning-parser
  std::vector<std::string> open{};     // any of these; the first is what the family writes
  std::vector<std::string> close{};
  std::vector<std::string> wrappers{};  // markers around the answer, which do not show
  bool channels = false;                // harmony: every message says what it is

  std::vector<std::string> markers() const;  // as Dialect::markers
};

struct Dialect {
  std::string name;
  std::vector<std::string> aliases{};  // further names of --tool-call-parser
  CallFormat calls{};
  std::vector<std::string> wrappers{};
  bool channels = false;

  // All markers; those that are special tokens must reach the parser as text.
  std::vector<std::string> markers() const;
};

const std::vector<Dialect>& dialects();
const std::vector<ReasoningFormat>& reasoning_formats();
// By name or alias; null where there is none.
const Dialect* find_dialect(std::string_view name);
const ReasoningFormat* find_reasoning_format(std::string_view name);

// The same, where one name stands for several dialects (mistral) and the template decides.
const Dialect* find_dialect(std::string_view name, std::string_view chat_template);

// What a chat template shows about how its model calls tools and thinks; null: nothing known.
const Dialect* dialect_of_template(std::string_view chat_template);
const ReasoningFormat* reasoning_of_template(std::string_view chat_template);

}  // namespace quire
