#include "text/template/chat_template.h"

#include <catch2/catch.hpp>
#include <filesystem>
#include <fstream>
#include <string>
#include <thread>
#include <vector>

#include "jinja/values/json.h"

namespace quire {
namespace {

namespace fs = std::filesystem;
using Kind = TemplateError::Kind;

// A model's folder that lives as long as the test.
class ModelDir {
 public:
  ModelDir()
      : path_(fs::temp_directory_path() / ("quire_chat_template_" + std::to_string(::getpid()))) {
    fs::create_directories(path_);
  }
  ~ModelDir() { fs::remove_all(path_); }
  ModelDir& with(const std::string& file, const std::string& content) {
    std::ofstream(path_ / file, std::ios::binary) << content;
    return *this;
  }
  std::string path() const { return path_.string(); }

 private:
  fs::path path_;
};

ChatTemplateInput input(const std::string& messages) {
  ChatTemplateInput made;
  made.messages = jinja::parse_json(messages);
  return made;
}

const std::string kOneMessage = R"([{"role": "user", "content": "Hi"}])";

std::string failure_of(const std::string& model_dir) {
  try {
    ChatTemplate::load(model_dir);
  } catch (const Failure& failure) {
    return failure.what();
  }
  return "";
}

TEST_CASE("a model's template is found where models keep it", "[text][chat_template]") {
  ModelDir dir;
  dir.with("tokenizer_config.json", R"({"chat_template": "config {{ messages[0].content }}"})");
  CHECK(ChatTemplate::load(dir.path()).render(input(kOneMessage)).text == "config Hi");
  dir.with("chat_template.jinja", "file {{ messages[0].content }}\n");
  CHECK(ChatTemplate::load(dir.path()).render(input(kOneMessage)).text == "file Hi");
}

TEST_CASE("of several templates, requests with tools get their own", "[text][chat_template]") {
  ModelDir dir;
  dir.with("tokenizer_config.json", GENERATE(R"({"chat_template": [{"name": "default", "template": "plain"},
      {"name": "rag", "template": "{{ unused"}, {"name": "tool_use", "template": "tools"}]})",
      R"({"chat_template": {"default": "plain", "rag": {}, "tool_use": "tools"}})"));
  const ChatTemplate chat_template = ChatTemplate::load(dir.path());
  ChatTemplateInput request = input(kOneMessage);
  CHECK(chat_template.render(request).text == "plain");
  request.tools = jinja::parse_json("[{}]");
  CHECK(chat_template.render(request).text == "tools");
}

TEST_CASE("templates stand in files of their own too", "[text][chat_template]") {
  ModelDir dir;
  dir.with("tokenizer_config.json",
           R"({"chat_template": "config", "model_max_length": 1000000000000000019884624838656})");
  dir.with("chat_template.json", R"({"chat_template": "processor"})");
  CHECK(ChatTemplate::load(dir.path()).render(input(kOneMessage)).text == "processor");
  dir.with("chat_template.jinja", "file");
  std::filesystem::create_directory(std::filesystem::path(dir.path()) /
                                    "additional_chat_templates");
  dir.with("additional_chat_templates/tool_use.jinja", "tools");
  const ChatTemplate chat_template = ChatTemplate::load(dir.path());
  ChatTemplateInput request = input(kOneMessage);
  CHECK(chat_template.render(request).text == "file");
  request.tools = jinja::parse_json("[{}]");
  CHECK(chat_template.render(request).text == "tools");
}

TEST_CASE("special tokens are names, and a request's names win", "[text][chat_template]") {
  ModelDir dir;
  dir.with("tokenizer_config.json",
           R"({"bos_token": "<s>", "eos_token": {"content": "</s>", "lstrip": false},
      "pad_token": null, "chat_template": "{{ bos_token }}{{ eos_token }}{{ pad_token is defined }}{{ mode }}"})");
  const ChatTemplate chat_template = ChatTemplate::load(dir.path());
  ChatTemplateInput request = input(kOneMessage);
  CHECK(chat_template.render(request).text == "<s></s>False");
  request.kwargs.set("mode", jinja::Value("fast"));
  request.kwargs.set("bos_token", jinja::Value("[B]"));
  CHECK(chat_template.render(request).text == "[B]</s>Falsefast");
}

TEST_CASE("a folder without a template, or with a broken one, is refused by file and line",
          "[text][chat_template]") {
  ModelDir dir;
  CHECK_THAT(failure_of(dir.path()), Catch::Contains("no chat template"));
  dir.with("tokenizer_config.json", "{\"chat_template\": ");
  CHECK_THAT(failure_of(dir.path()),
             Catch::Contains("tokenizer_config.json") && Catch::Contains("JSON"));
  dir.with("tokenizer_config.json", R"({"chat_template": [{"template": "no name"}]})");
  CHECK_THAT(failure_of(dir.path()), Catch::Contains("chat_template[0].name: is missing"));
  dir.with("chat_template.jinja", "first\nsecond {{ oops\n");
  CHECK_THAT(failure_of(dir.path()),
             Catch::Contains("not") ||
                 (Catch::Contains("chat_template.jinja") && Catch::Contains("line 2")));
}

TEST_CASE("an error says where the template stood", "[text][chat_template]") {
  const ChatTemplate chat_template =
      ChatTemplate::parse("a\n{% for m in messages %}\n{{ m.content + m.nothing }}\n{% endfor %}");
  const RenderResult result = chat_template.render(input(kOneMessage));
  REQUIRE(result.error);
  CHECK(result.error->kind == Kind::undefined);
  CHECK(result.error->line == 3);
  const Error error = result.error->to_error();
  CHECK(error.code == ErrorCode::invalid_argument);
  CHECK_THAT(error.detail, Catch::Contains("line 3") &&
                               Catch::Contains("'dict object' has no attribute 'nothing'"));
}

TEST_CASE("a template's own complaint comes as it was written", "[text][chat_template]") {
  const RenderResult result = ChatTemplate::parse("{{ raise_exception('roles must alternate') }}")
                                  .render(input(kOneMessage));
  REQUIRE(result.error);
  CHECK(result.error->kind == Kind::raised);
  CHECK(result.error->message == "roles must alternate");
}

TEST_CASE("null fields are as good as absent, and reasoning has all its names",
          "[text][chat_template]") {
  const ChatTemplate chat_template = ChatTemplate::parse("{{ messages[0] | tojson }}");
  CHECK(
      chat_template.render(input(R"([{"role": "assistant", "content": null, "reasoning": "hm"}])"))
          .text ==
      R"({"thinking": "hm", "role": "assistant", "reasoning": "hm", "reasoning_content": "hm"})");
}

TEST_CASE("the final message can be left open", "[text][chat_template]") {
  const ChatTemplate trims =
      ChatTemplate::parse("{% for m in messages %}<{{ m.content | trim }}>{% endfor %}");
  ChatTemplateInput request =
      input(R"([{"role": "user", "content": "a"}, {"role": "assistant", "content": "b \n"}])");
  request.continue_final_message = true;
  CHECK(trims.render(request).text == "<a><b");
  CHECK(ChatTemplate::parse("{% for m in messages %}<{{ m.content }}>{% endfor %}")
            .render(request)
            .text == "<a><b \n");

  const RenderResult dropped = ChatTemplate::parse("{{ messages[0].content }}").render(request);
  REQUIRE(dropped.error);
  CHECK(dropped.error->kind == Kind::value);
  request.add_generation_prompt = true;
  REQUIRE(trims.render(request).error);
  CHECK(trims.render(request).error->kind == Kind::value);
}

TEST_CASE("a template that is not the model's own knows the model's special tokens too",
          "[text][chat_template]") {
  ModelDir dir;
  dir.with("tokenizer_config.json", R"({"eos_token":"<e>","bos_token":{"content":"<b>"}})")
      .with("special_tokens_map.json", R"({"eos_token":"<other>","pad_token":"<p>"})");
  const auto given = ChatTemplate::parse("{{ bos_token }}{{ eos_token }}{{ pad_token }}",
                                         ChatTemplate::special_tokens(dir.path()));
  CHECK(given.render(input("[]")).text == "<b><other><p>");
}

// Recorded with transformers 5.24.
TEST_CASE("a token that only this model names is a variable of its template",
          "[text][chat_template]") {
  ModelDir dir;
  dir.with("tokenizer_config.json",
           R"({"image_token":"<i>","extra_special_tokens":{"eoi":"<e>","mask_token":"<m>"}})");
  const auto given = ChatTemplate::parse("{{ image_token }}{{ eoi }}{{ mask_token }}",
                                         ChatTemplate::special_tokens(dir.path()));
  CHECK(given.render(input("[]")).text == "<i><e><m>");
}

TEST_CASE("a template shows whether the model thinks", "[text][chat_template]") {
  CHECK(ChatTemplate::load("models/quire-tiny").source().find("<think>") != std::string::npos);
  CHECK(ChatTemplate::parse("{{ messages[0].content }}").source() == "{{ messages[0].content }}");
}

TEST_CASE("one template serves many threads", "[text][chat_template]") {
  const ChatTemplate chat_template = ChatTemplate::load("models/quire-tiny");
  const ChatTemplateInput request = input(kOneMessage);
  const std::string expected = chat_template.render(request).text;
  REQUIRE_FALSE(expected.empty());
  std::vector<int> wrong(4);
  std::vector<std::thread> threads;
  for (int& count : wrong) {
    threads.emplace_back([&] {
      for (int i = 0; i < 200; ++i) count += chat_template.render(request).text != expected;
    });
  }
  for (std::thread& thread : threads) thread.join();
  CHECK(wrong == std::vector<int>(4));
}

TEST_CASE("JSON is read and written as Python does", "[text][jinja][json]") {
  struct Case {
    const char* json;
    const char* expected;
  };
  const auto c = GENERATE(values<Case>({
      {"[1, -0, 1.0, 1e3, 1E-7, 1e22, 123456789012345678901234567890]",
       "[1, 0, 1.0, 1000.0, 1e-07, 1e+22, 123456789012345678901234567890]"},
      {"{\"b\": 1, \"a\": 2, \"b\": 3}", "{\"b\": 3, \"a\": 2}"},
      {"\"\\u00e9\\ud83d\\ude42\\n\\/\"", "\"é🙂\\n/\""},
      {" [ true , false , null , NaN , -Infinity ] ", "[true, false, null, NaN, -Infinity]"},
      {"[1e400, 0.1, 5e-324]", "[Infinity, 0.1, 5e-324]"},
  }));
  CHECK(jinja::dump_json(jinja::parse_json(c.json), {}) == c.expected);
}

TEST_CASE("what is not JSON is refused, saying where", "[text][jinja][json]") {
  const std::string json =
      GENERATE("", "[1,]", "{\"a\" 1}", "{1: 2}", "[01]", "1.", "\"\\x\"", "\"\\ud800\"", "\"a",
               "[1] 2", "nul", "\"\t\"", "+1", "\"\xff\"");
  INFO(json);
  CHECK_THROWS_WITH(jinja::parse_json(json),
                    Catch::StartsWith("JSON: ") && Catch::Contains("at byte"));
}

TEST_CASE("JSON that is nested too deeply is refused", "[text][jinja][json]") {
  CHECK_THROWS_WITH(jinja::parse_json(std::string(100'000, '[')),
                    Catch::Contains("nested deeper than 200"));
}

}  // namespace
}  // namespace quire
