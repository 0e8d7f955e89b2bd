#pragma once
// The rows of calls that a dialect knows, as parts of a structural tag: made of the same lines that
// the parser reads calls by.

#include <string>
#include <vector>

#include "text/output/constraint_nodes.h"
#include "text/output/output_parser.h"

namespace quire {

class CallConstraint {
 public:
  // A function that may be called.
  struct Function {
    std::string name;
    jinja::Value parameters;  // its schema, or none
    bool held = false;        // the arguments obey it; else they are what the dialect can write
    bool is_strict = false;   // else they obey it as far as it can be enforced
    std::string place;        // JSON pointer of the schema in the request
  };

  // Lives no longer than the format's dialect. Text parameters of the dialects that write values
  // bare are held to their enum, else free.
  CallConstraint(const OutputFormat& format, std::vector<Function> functions, bool parallel);

  // At least one call and nothing else.
  jinja::Value required() const;
  // Any text; a call that it begins is held from there on.
  jinja::Value automatic() const;

 private:
  jinja::Value row(bool begun) const;
  jinja::Value calls(bool begun) const;
  jinja::Value call(const Function& function, bool begun) const;
  jinja::Value arguments(const Function& function, CallPart::Kind kind) const;
  jinja::Value parameters(const Function& function) const;
  jinja::Value parameter(const Function& function, const std::string& name,
                         const jinja::Value& property) const;
  std::string begin() const;
  std::vector<std::string> call_openings() const;

  const OutputFormat& output_;
  CallFormat format_;
  std::vector<Function> functions_;
  bool parallel_;
};

}  // namespace quire
