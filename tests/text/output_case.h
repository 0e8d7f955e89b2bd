#pragma once
// Recorded outputs of models with what they mean (tests/data/parsers, or all of
// $QUIRE_PARSERS_DIR), and a client that adds up what a parser says.

#include <string>
#include <vector>

#include "jinja/values/value.h"
#include "text/output/output_parser.h"

namespace quire::test {

struct Call {
  std::string name;
  std::string arguments;
  bool operator==(const Call&) const = default;
};

struct Parsed {
  std::string reasoning;
  std::string content;
  std::vector<Call> calls;
  std::string complaint;  // of how the deltas came; empty: fine
  bool operator==(const Parsed&) const = default;
};
std::ostream& operator<<(std::ostream& out, const Parsed& parsed);

void add(Parsed& parsed, const OutputDelta& delta);
Parsed parse(const OutputFormat& format, const std::vector<std::string_view>& pieces);

struct OutputCase {
  std::string id;
  OutputFormat format;
  std::string text;
  bool live = false;
  jinja::Value wanted;  // the case's object
};

const std::vector<OutputCase>& output_cases();
std::vector<std::string> markers_of(const std::string& dialect);

// Empty: the result is (one of) what the case expects.
std::string mismatch(const OutputCase& c, const Parsed& got);

// Cut after each character.
std::vector<std::string_view> characters(std::string_view text);

}  // namespace quire::test
