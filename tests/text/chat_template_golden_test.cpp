// What transformers makes of templates: tests/data/golden/chat_templates, or all of
// $QUIRE_GOLDEN_DIR/chat_templates.

#include <catch2/catch.hpp>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <map>
#include <string>
#include <vector>

#include "text/template/chat_template.h"

namespace {

namespace fs = std::filesystem;
using quire::ChatTemplate;
using quire::RenderResult;
using quire::TemplateError;
using quire::jinja::Dict;
using quire::jinja::Value;

fs::path golden_dir() {
  const char* dir = std::getenv("QUIRE_GOLDEN_DIR");
  return fs::path(dir != nullptr ? dir : "tests/data/golden") / "chat_templates";
}

std::string read(const fs::path& path) {
  std::ifstream file(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(file), {}};
}

std::vector<fs::path> families() {
  std::vector<fs::path> folders;
  for (const auto& entry : fs::recursive_directory_iterator(golden_dir())) {
    if (entry.path().filename() == "cases.jsonl") folders.push_back(entry.path().parent_path());
  }
  std::sort(folders.begin(), folders.end());
  return folders;
}

Value field(const Dict& dict, std::string_view name) {
  const Value* found = dict.find(name);
  return found == nullptr ? Value() : *found;
}

Dict dict_field(const Dict& dict, std::string_view name) {
  const Value value = field(dict, name);
  return value.is(Value::Kind::dict) ? value.dict() : Dict();
}

// Local time of all recorded cases: Saturday, 8 March 2025, 9:05:07.
std::tm recorded_now() {
  std::tm now{};
  now.tm_year = 125;
  now.tm_mon = 2;
  now.tm_mday = 8;
  now.tm_hour = 9;
  now.tm_min = 5;
  now.tm_sec = 7;
  now.tm_wday = 6;
  now.tm_yday = 66;
  return now;
}

RenderResult render(const ChatTemplate& chat_template, const Dict& c) {
  if (c.find("context") != nullptr)
    return chat_template.render_context(dict_field(c, "context"), recorded_now());
  quire::ChatTemplateInput input;
  input.messages = field(c, "messages");
  input.tools = field(c, "tools");
  input.documents = field(c, "documents");
  input.add_generation_prompt = field(c, "add_generation_prompt").boolean();
  input.continue_final_message = field(c, "continue_final_message").boolean();
  input.kwargs = dict_field(c, "kwargs");
  input.now = recorded_now();
  return chat_template.render(input);
}

RenderResult parse_and_render(const std::string& source, const Dict& c) {
  try {
    return render(ChatTemplate::parse(source), c);
  } catch (const quire::TemplateFailure& failure) {
    return {{}, failure.cause()};
  }
}

// Empty where the answer is the recorded one.
std::string difference(const Dict& c, const RenderResult& result) {
  if (const Value* expected = c.find("expected")) {
    if (result.error) return "error: " + result.error->message;
    return result.text == expected->string()
               ? ""
               : "expected [" + expected->string() + "]\ngot [" + result.text + "]";
  }
  const std::string wanted = field(c, "error_kind").string() + ": " + field(c, "error").string();
  if (!result.error) return "text in place of an error, " + wanted + "\ngot [" + result.text + "]";
  if (name_of(result.error->kind) != field(c, "error_kind").string()) {
    return "an error of kind " + std::string(name_of(result.error->kind)) + " in place of " +
           wanted;
  }
  const bool raised = result.error->kind == TemplateError::Kind::raised;
  return raised && result.error->message != field(c, "error").string()
             ? "another message than " + wanted
             : "";
}

}  // namespace

TEST_CASE("templates render what the reference renders", "[text][chat_template][golden]") {
  const std::vector<fs::path> folders = families();
  REQUIRE_FALSE(folders.empty());
  for (const fs::path& folder : folders) {
    const bool has_template = fs::exists(folder / "template.jinja");
    const std::string source = has_template ? read(folder / "template.jinja") : "";
    std::ifstream lines(folder / "cases.jsonl");
    int num_cases = 0;
    for (std::string line; std::getline(lines, line); ++num_cases) {
      const Value c = quire::jinja::parse_json(line);
      const std::string own_source = has_template ? source : field(c.dict(), "template").string();
      INFO(folder.filename().string() << " " << field(c.dict(), "name").string());
      INFO((has_template ? "" : own_source));
      CHECK(difference(c.dict(), parse_and_render(own_source, c.dict())) == "");
    }
    CHECK(num_cases > 0);
  }
}
