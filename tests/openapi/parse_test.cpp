#include <catch2/catch.hpp>
#include <string>

#include "openapi/dto_json.h"

using namespace quire;
using namespace quire::openapi;

namespace {

const std::string kMessages = R"("messages":[{"role":"user","content":"Hi"}])";

std::string chat_error(const std::string& members) {
  const auto parsed = parse_chat_completion("{" + members + "}");
  return parsed ? "accepted" : parsed.error().field + " | " + parsed.error().detail;
}

struct Case {
  std::string members;
  std::string error;  // "field | detail"
};

}  // namespace

TEST_CASE("a chat request arrives in its struct", "[openapi][parse]") {
  const auto chat = parse_chat_completion(R"({
    "model": "tiny", "stream": true, "stream_options": {"include_usage": true}, "n": 2,
    "messages": [{"role": "system", "content": [{"type": "text", "text": "a"}, {"type": "text", "text": "b"}]},
                 {"role": "assistant", "content": null, "reasoning_content": "hm",
                  "tool_calls": [{"id": "c1", "type": "function",
                                  "function": {"name": "f", "arguments": "{\"x\":1}"}}]},
                 {"role": "tool", "tool_call_id": "c1", "content": "3"}],
    "tools": [{"type": "function", "function": {"name": "f", "parameters": {"type": "object"}}}],
    "tool_choice": "auto", "max_tokens": 9, "max_completion_tokens": 7, "temperature": 0, "top_k": 4.0,
    "stop": "END", "logit_bias": {"5": -200, "7": 1.5}, "seed": null,
    "chat_template_kwargs": {"enable_thinking": true}, "metadata": {"a": "b"}, "user": "u"})");
  REQUIRE(chat.has_value());
  CHECK(chat->model == "tiny");
  CHECK(chat->stream);
  CHECK(chat->stream_options->include_usage);
  CHECK_FALSE(chat->stream_options->continuous_usage_stats);
  CHECK(chat->n == 2);
  REQUIRE(chat->messages.size() == 3);
  CHECK(chat->messages[0].content == "a\nb");
  CHECK(chat->messages[0].part_breaks == std::vector<std::size_t>{1});
  CHECK_FALSE(chat->messages[1].content);
  CHECK(chat->messages[1].reasoning == "hm");
  CHECK(chat->messages[1].tool_calls.at(0).function.arguments == R"({"x":1})");
  CHECK(chat->messages[2].tool_call_id == "c1");
  CHECK(chat->tools ==
        R"([{"type":"function","function":{"name":"f","parameters":{"type":"object"}}}])");
  CHECK(chat->tool_choice == ToolChoice::automatic);
  CHECK(chat->max_tokens == 7);
  CHECK(chat->temperature == 0.0);
  CHECK(chat->top_k == 4);
  CHECK(chat->stop == std::vector<std::string>{"END"});
  CHECK(chat->logit_bias == std::vector<std::pair<TokenId, double>>{{5, -100}, {7, 1.5}});
  CHECK_FALSE(chat->seed);
  CHECK(chat->chat_template_kwargs == R"({"enable_thinking":true})");
  CHECK(chat->max_tokens_name == "max_completion_tokens");
  CHECK(chat->unknown_members == std::vector<std::string>{"max_completion_tokens"});
  CHECK(chat->unsupported.empty());
}

TEST_CASE("a wrong chat request is refused with the place that is wrong", "[openapi][parse]") {
  const auto c = GENERATE(values<Case>({
      {R"("messages":[])", "messages | messages: at least one message is required"},
      {R"("model":"tiny")", "messages | messages: at least one message is required"},
      {R"("messages":"hi")", "messages | messages: expected an array, got a string"},
      {R"("messages":[7])", "messages[0] | messages[0]: expected an object, got an integer"},
      {R"("messages":[{"content":"x"}])", "messages[0] | messages[0]: role is missing"},
      {R"("messages":[{"role":"user"}])", "messages[0] | messages[0]: content is missing"},
      {R"("messages":[{"role":"a robot","content":"x"}])",
       "messages[0].role | messages[0].role: \"a robot\" is not a role; expected system, developer, "
       "user, assistant, tool or a word that the chat template knows"},
      {R"("messages":[{"role":"user","content":[{"type":"image_url","image_url":{}}]}])",
       "messages[0].content[0].type | messages[0].content[0].type: \"image_url\" is not supported: "
       "the model "
       "takes text only"},
      {R"("messages":[{"role":"assistant","tool_calls":[{"id":"a"}]}])",
       "messages[0].tool_calls[0] | messages[0].tool_calls[0]: function is missing"},
      {kMessages + R"(,"temperature":"hot")",
       "temperature | temperature: expected a number, got a string"},
      {kMessages + R"(,"temperature":true)",
       "temperature | temperature: expected a number, got a boolean"},
      {kMessages + R"(,"max_tokens":1.5)",
       "max_tokens | max_tokens: expected an integer, got a number"},
      {kMessages + R"(,"max_tokens":18446744073709551615)",
       "max_tokens | max_tokens: is too large"},
      {kMessages + R"(,"max_completion_tokens":[])",
       "max_completion_tokens | max_completion_tokens: expected an integer, got an array"},
      {kMessages + R"(,"seed":9223372036854775808)", "seed | seed: is too large"},
      {kMessages + R"(,"seed":-9223372036854775809)",
       "seed | seed: the number does not fit 64 bits"},
      {kMessages + R"(,"stop_token_ids":[1,99999999999999999999999])",
       "stop_token_ids[1] | stop_token_ids[1]: the number does not fit 64 bits"},
      {kMessages + R"(,"a":{"b\"":[{},"}",{"c":1}]},"temperature":1e999)",
       "temperature | temperature: the number does not fit 64 bits"},
      {kMessages + R"(,"prompt_logprobs":-1)",
       "prompt_logprobs | prompt_logprobs: must be between 0 and 20 (-1, the whole vocabulary, is "
       "not offered), got -1"},
      {kMessages + R"(,"prompt_logprobs":true)",
       "prompt_logprobs | prompt_logprobs: expected an integer, got a boolean"},
      {kMessages + R"(,"prompt_logprobs":0,"stream":true)",
       "prompt_logprobs | prompt_logprobs: not available when stream is true"},
      {kMessages + R"(,"truncation_side":"middle")", "truncation_side | truncation_side: must be left or right"},
      {kMessages + R"(,"stream_interval":0)",
       "stream_interval | stream_interval: must be 1: tokens are sent as they come"},
      {kMessages + R"(,"truncate_prompt_tokens":0)",
       "truncate_prompt_tokens | truncate_prompt_tokens: must be at least 1, or -1 (what the "
       "context leaves beside the output)"},
      {kMessages + R"(,"n":3,"best_of":2)", "best_of | best_of: must be at least n, 3"},
      {kMessages + R"(,"user":5)", "user | user: expected a string, got an integer"},
      {kMessages + R"(,"metadata":"m")", "metadata | metadata: expected an object, got a string"},
      {kMessages + R"(,"modalities":["text","audio"])",
       "modalities | modalities: only text is offered"},
      {kMessages + R"(,"echo":"yes")", "echo | echo: expected a boolean, got a string"},
      {kMessages + R"(,"stream":"yes")", "stream | stream: expected a boolean, got a string"},
      {kMessages + R"(,"stream_options":{})",
       "stream_options | stream_options: only allowed when stream is true"},
      {kMessages + R"(,"n":0)", "n | n: must be between 1 and 128, got 0"},
      {kMessages + R"(,"n":1000000)", "n | n: must be between 1 and 128, got 1000000"},
      {kMessages + R"(,"stop":["a",""])", "stop | stop: a stop string must not be empty"},
      {kMessages + R"(,"stop":["a",1])", "stop[1] | stop[1]: expected a string, got an integer"},
      {kMessages + R"(,"stop_token_ids":[99999999999])",
       "stop_token_ids[0] | stop_token_ids[0]: 99999999999 does not fit 32 bits"},
      {kMessages + R"(,"logit_bias":{"x":1})", "logit_bias | logit_bias: \"x\" is not a token id"},
      {kMessages + R"(,"top_logprobs":3)",
       "top_logprobs | top_logprobs: only allowed when logprobs is true"},
      {kMessages + R"(,"logprobs":true,"top_logprobs":21)",
       "top_logprobs | top_logprobs: must be between 0 and 20, got 21"},
      {kMessages + R"(,"cache_salt":"")", "cache_salt | cache_salt: must not be empty"},
      {kMessages + R"(,"allowed_token_ids":[])",
       "allowed_token_ids | allowed_token_ids: must not be empty: nothing could follow"},
      {kMessages + R"(,"tool_choice":"auto")",
       "/tool_choice | only allowed when tools are given (at /tool_choice)"},
      {kMessages + R"(,"tools":[{"type":"function"}])", "/tools/0 | function is missing (at /tools/0)"},
      {kMessages + R"(,"tools":[{"function":{"name":""}}])",
       "/tools/0/function/name | must be 1 to 256 bytes of letters, digits and _ - . / (at /tools/0/function/name)"},
      {kMessages + R"(,"tools":[{"function":{"name":"f"}},{"function":{"name":"<|im_end|>"}}])",
       "/tools/1/function/name | must be 1 to 256 bytes of letters, digits and _ - . / (at /tools/1/function/name)"},
      {kMessages + R"(,"tools":[{"function":{"name":"a\nb"}}])",
       "/tools/0/function/name | must be 1 to 256 bytes of letters, digits and _ - . / (at /tools/0/function/name)"},
      {kMessages + R"(,"tools":[{"function":{"name":"f"}},{"function":{"name":"f"}}])",
       "/tools/1/function/name | \"f\" is the name of an earlier function, too (at /tools/1/function/name)"},
      {kMessages + R"(,"tools":[{"function":{"name":"f","parameters":[]}}])",
       "/tools/0/function/parameters | expected an object, got an array (at /tools/0/function/parameters)"},
      {kMessages + R"(,"tools":[{"function":{"name":"f","strict":1}}])",
       "/tools/0/function/strict | expected true or false, got an integer (at /tools/0/function/strict)"},
      {kMessages + R"(,"tools":[{"function":{"name":"f"}}],"tool_choice":{"type":"function"})",
       "/tool_choice | function is missing (at /tool_choice)"},
      {kMessages + R"(,"tools":[{"function":{"name":"f"}}],"tool_choice":{"type":"any"})",
       "/tool_choice/type | must be function or allowed_tools (at /tool_choice/type)"},
      {kMessages + R"(,"tools":[{"function":{"name":"f"}}],"tool_choice":{"type":"allowed_tools","allowed_tools":{"mode":"auto",)"
                   R"("tools":[{"function":{"name":"f"}},{"function":{"name":"g"}}]}})",
       "/tool_choice/allowed_tools/tools/1/function/name | \"g\" is none of the tools; they are f (at "
       "/tool_choice/allowed_tools/tools/1/function/name)"},
      {kMessages + R"(,"tools":[{"function":{"name":"f"}}],"tool_choice":{"type":"allowed_tools","allowed_tools":{"mode":"any","tools":[]}})",
       "/tool_choice/allowed_tools/mode | must be auto or required (at /tool_choice/allowed_tools/mode)"},
      {kMessages +
           R"(,"tools":[{"function":{"name":"f"}}],"tool_choice":{"function":{"name":"g"}})",
       "/tool_choice/function/name | \"g\" is none of the tools; they are f (at /tool_choice/function/name)"},
      {kMessages + R"(,"tools":[{"function":{"name":"f"}}],"tool_choice":"required",)"
                   R"("response_format":{"type":"json_object"})",
       "/response_format | contradicts a tool_choice that demands a call (at /response_format)"},
      {kMessages + R"(,"reasoning_effort":"banana")",
       "reasoning_effort | reasoning_effort: must be one of none, minimal, low, medium, high, xhigh, max"},
      {kMessages + R"(,"response_format":{"type":"poem"})",
       "/response_format/type | must be text, json_object, json_schema or structural_tag (at /response_format/type)"},
      {kMessages + R"(,"response_format":{"type":"json_schema"})",
       "/response_format | json_schema is missing (at /response_format)"},
      {kMessages + R"(,"response_format":{"type":"json_schema","json_schema":{"name":"x"}})",
       "/response_format/json_schema | schema is missing (at /response_format/json_schema)"},
      {kMessages + R"(,"response_format":{"type":"json_schema","json_schema":{"schema":[]}})",
       "/response_format/json_schema/schema | expected an object, got an array (at /response_format/json_schema/schema)"},
      {kMessages + R"(,"structured_outputs":{"regex":"a"},"guided_choice":["b"])",
       "/guided_choice | contradicts /structured_outputs/regex: an answer has one form (at /guided_choice)"},
      {kMessages + R"(,"structured_outputs":{"json":"{"})",
       "/structured_outputs/json | is not JSON: expected a name in quotes at line 1, column 2 (at /structured_outputs/json)"},
      {kMessages + R"(,"tools":[{"type":"function","function":{"name":"f","parameters":{"maximum":0.12345678901234567890}}}])",
       "/tools/0/function/parameters/maximum | has more digits than a double holds (at /tools/0/function/parameters/maximum)"},
      {kMessages + R"(,"structured_outputs":{"whitespace_pattern":" "})",
       "/structured_outputs | one of json, regex, choice, grammar, json_object and structural_tag is required (at /structured_outputs)"},
      {kMessages + R"(,"guided_regex":"a","guided_whitespace_pattern":" ")",
       "/guided_whitespace_pattern | white space is ruled where the answer is JSON only (at /guided_whitespace_pattern)"},
      {kMessages + R"(,"structured_outputs":{"json":{},"whitespace_pattern":" ","disable_any_whitespace":true})",
       "/structured_outputs/disable_any_whitespace | contradicts structured_outputs/whitespace_pattern (at /structured_outputs/disable_any_whitespace)"},
      {kMessages + R"(,"bad_words":[" "])", "bad_words | bad_words: a word must not be empty"},
      {kMessages + R"(,"thinking_budget":-2)",
       "thinking_budget | thinking_budget: must be at least 0, or -1 (no limit)"},
      {kMessages + R"(,"continue_final_message":true)",
       "continue_final_message | continue_final_message: cannot be true while "
       "add_generation_prompt is true "
       "(its default)"},
      {kMessages + R"(,"chat_template_kwargs":[1])",
       "chat_template_kwargs | chat_template_kwargs: expected an object, got an array"},
  }));
  INFO(c.members);
  CHECK(chat_error(c.members) == c.error);
}

TEST_CASE("a schema's numbers are what the client wrote", "[openapi][parse]") {
  const std::string schema = R"({"maximum":18446744073709551616,"a~/b":[1e30,0.1000,-0.0],"enum":["\u00e9\n\"",null,true]})";
  const auto parsed = [](const std::string& members) {
    const auto chat = parse_chat_completion("{" + kMessages + members + "}");
    REQUIRE(chat.has_value());
    return *chat;
  };
  CHECK(parsed(R"(,"response_format":{"type":"json_schema","json_schema":{"name":"x","schema":)" + schema + "}}").grammar->text == schema);
  CHECK(parsed(R"(,"structured_outputs":{"json": )" + schema + " }").grammar->text == schema);
  CHECK(parsed(R"(,"structured_outputs":{"json":"{\"maximum\": 18446744073709551616}"})").grammar->text ==
        R"({"maximum": 18446744073709551616})");
  CHECK(parsed(R"(,"tools":[{"type":"function","function":{"name":"f","parameters":{"minimum":-9223372036854775809}}}])").tools.find(
            "-9223372036854775809}") != std::string::npos);
}

TEST_CASE("what is handed on to another server has numbers of any size", "[openapi][parse]") {
  const auto chat = parse_chat_completion(
      "{" + kMessages + R"(,"kv_transfer_params":{"junk":18446744073709551616,"a":[1e400]}})");
  REQUIRE(chat.has_value());
  CHECK(chat->kv_transfer_params == R"({"junk":18446744073709551616,"a":[1e400]})");
  CHECK(parse_chat_completion("{" + kMessages + R"(,"kv_transfer":18446744073709551616})")
            .has_error());
}

TEST_CASE("what is not JSON is refused", "[openapi][parse]") {
  for (const std::string body :
       {"", " ", "{", "[]", "\"x\"", "{\"a\":}", "{\"a\":1}x", "\xFF\xFE",
        "{\"messages\":[{\"role\":\"user\",\"content\":\"\xFF\"}]}", "nul"}) {
    INFO(body);
    const auto parsed = parse_chat_completion(body);
    REQUIRE(parsed.has_error());
    CHECK(parsed.error().code == ErrorCode::invalid_argument);
    CHECK(parsed.error().detail.find("The request body") == 0);
  }
  CHECK(parse_chat_completion(std::string(100'000, '[')).has_error());
  const auto parsed = parse_chat_completion("{\"model\": \"m\",\n \"messages\": [,]}");
  CHECK(parsed.error().detail ==
        "The request body is not valid JSON: expected a value at line 2, column 15");
}

TEST_CASE("what is not offered is noted, not dropped", "[openapi][parse]") {
  const auto chat = parse_chat_completion(
      "{" + kMessages +
      R"(,"prompt_embeds":"x","best_of":1,"bad_words":[],"suffix":"s","prompt_logprobs":null,"media_io_kwargs":{"video":{}}})");
  REQUIRE(chat.has_value());
  CHECK(chat->unsupported == std::vector<std::string>{"suffix", "prompt_embeds", "media_io_kwargs"});
  const auto beams = parse_completion(R"({"prompt":"a","use_beam_search":1,"n":2,"best_of":3})");
  CHECK(beams->unsupported == std::vector<std::string>{"use_beam_search", "best_of"});
  const auto searching = parse_chat_completion(
      "{" + kMessages + R"(,"web_search_options":{},"mm_processor_kwargs":{},"repetition_detection":null})");
  REQUIRE(searching.has_value());
  CHECK(searching->unsupported == std::vector<std::string>{"web_search_options"});
  const std::vector<std::string> late{"logprob_token_ids", "return_prompt_text", "return_token_offsets",
                                      "return_weight_versions", "watermarking", "ec_transfer_params"};
  const auto asking = parse_completion(
      R"({"prompt":"a","logprob_token_ids":[5],"return_prompt_text":true,"return_token_offsets":true,)"
      R"("return_weight_versions":true,"watermarking":{"key":1},"ec_transfer_params":{"a":1},"stream_interval":1})");
  REQUIRE(asking.has_value());
  CHECK(asking->unsupported == late);
  const auto not_asking = parse_completion(
      R"({"prompt":"a","logprob_token_ids":[],"return_prompt_text":false,"watermarking":null,"truncation_side":"left"})");
  REQUIRE(not_asking.has_value());
  CHECK(not_asking->unsupported.empty());
}

TEST_CASE("an answer's form has many names", "[openapi][parse]") {
  const auto grammar = [](const std::string& members) {
    const auto chat = parse_chat_completion("{" + kMessages + "," + members + "}");
    INFO(members);
    REQUIRE(chat.has_value());
    if (!chat->grammar) return std::string("none");
    return std::to_string(static_cast<int>(chat->grammar->kind)) + " " + chat->grammar->place + " " +
           chat->grammar->text;
  };
  CHECK(grammar(R"("response_format":{"type":"text"})") == "none");
  CHECK(grammar(R"("response_format":{"type":"json_object"})") ==
        R"(0 /response_format {"type":"object"})");
  CHECK(grammar(R"("response_format":{"type":"json_schema","json_schema":)"
                R"({"name":"n","strict":true,"schema":{"enum":[12345678901,0.10]}}})")
            .starts_with("0 /response_format/json_schema/schema {"));
  CHECK(grammar(R"("response_format":{"type":"structural_tag","format":{}})")
            .starts_with("4 /response_format {"));
  CHECK(grammar(R"("structured_outputs":{"json":"{\"type\": \"null\"}"})") ==
        R"(0 /structured_outputs/json {"type":"null"})");
  CHECK(grammar(R"("structured_outputs":{"choice":["a"]})") ==
        R"(2 /structured_outputs/choice ["a"])");
  CHECK(grammar(R"("guided_regex":"a+")") == "1 /guided_regex a+");
  CHECK(grammar(R"("guided_grammar":"root ::= x")") == "3 /guided_grammar root ::= x");
  CHECK(grammar(R"("structured_outputs":{"json_object":true,"disable_any_whitespace":true})") ==
        R"(0 /structured_outputs/json_object {"type":"object"})");
}

TEST_CASE("a completion's prompt has four forms", "[openapi][parse]") {
  const auto prompts = [](std::string json) {
    return parse_completion(R"({"prompt":)" + json + "}");
  };
  CHECK(prompts(R"("a")")->prompts.at(0).text == "a");
  CHECK(prompts(R"(["a","b"])")->prompts.at(1).text == "b");
  CHECK(prompts("[1,2]")->prompts.at(0).ids == std::vector<TokenId>{1, 2});
  const auto mixed = prompts(R"([[1,2],"x",[3]])");
  REQUIRE(mixed->prompts.size() == 3);
  CHECK(mixed->prompts[2].ids == std::vector<TokenId>{3});
  CHECK_FALSE(mixed->prompts[2].is_text);
}

TEST_CASE("a wrong completion's prompt is refused", "[openapi][parse]") {
  const auto c = GENERATE(values<Case>({
      {"{}", "prompt | prompt: is missing"},
      {R"({"prompt":[]})", "prompt | prompt: must not be empty"},
      {R"({"prompt":[[]]})", "prompt | prompt: must not be empty"},
      {R"({"prompt":{}})", "prompt | prompt: expected a string or an array, got an object"},
      {R"({"prompt":[1,"a"]})", "prompt[1] | prompt[1]: expected an integer, got a string"},
      {R"({"prompt":["a",true]})",
       "prompt[1] | prompt[1]: expected a string or an array of token ids, got a boolean"},
      {R"({"prompt":"a","logprobs":50})", "logprobs | logprobs: must be between 0 and 20, got 50"},
      {R"({"prompt":"a","tools":[{"type":"function"}]})",
       "/tools | is a member of /v1/chat/completions; this is /v1/completions (at /tools)"},
      {R"({"messages":[{"role":"user","content":"a"}]})",
       "messages | messages: is a member of /v1/chat/completions; this is /v1/completions"},
      {R"({"prompt":"a","max_completion_tokens":5})",
       "max_completion_tokens | max_completion_tokens: is a member of /v1/chat/completions; here it "
       "is called max_tokens"},
  }));
  INFO(c.members);
  const auto parsed = parse_completion(c.members);
  REQUIRE(parsed.has_error());
  CHECK(parsed.error().field + " | " + parsed.error().detail == c.error);
}

TEST_CASE("tokenize takes a prompt or messages, not both and not none", "[openapi][parse]") {
  CHECK(parse_tokenize(R"({"prompt":"x"})")->prompt == "x");
  CHECK(parse_tokenize("{" + kMessages + "}")->chat->messages.size() == 1);
  CHECK(parse_tokenize("{}").has_error());
  CHECK(parse_tokenize("{" + kMessages + R"(,"prompt":"x"})").has_error());
  CHECK(parse_detokenize(R"({"tokens":[1,2]})")->tokens.size() == 2);
  CHECK(parse_detokenize(R"({"tokens":[]})")->tokens.empty());
  CHECK(parse_detokenize("{}").has_error());
}

TEST_CASE("an error never echoes much of the request", "[openapi][parse]") {
  const std::string longest(100'000, 'x');
  CHECK(chat_error(R"("messages":[{"role":")" + longest + R"(","content":""}])").size() < 600);
  CHECK(chat_error(kMessages + R"(,"logit_bias":{")" + longest + R"(":1})").size() < 600);
  CHECK(chat_error(kMessages + R"(,"logit_bias":{"1":")" + longest + R"("})").size() < 600);
}

TEST_CASE("an empty list of tools leaves nothing to choose") {
  for (const char* choice : {R"("auto")", R"("none")"}) {
    const auto chat = openapi::parse_chat_completion(
        std::string("{") + kMessages + R"(,"tools":[],"tool_choice":)" + choice + "}");
    REQUIRE(chat.has_value());
    CHECK_FALSE(chat->tool_choice);
  }
  CHECK(chat_error(kMessages + R"(,"tools":[],"tool_choice":"required")") ==
        "/tool_choice | only allowed when tools are given (at /tool_choice)");
}

TEST_CASE("calls in the form before tool_calls are calls, and what a function answers a tool's") {
  const auto chat = openapi::parse_chat_completion(
      R"({"messages":[{"role":"user","content":"hi"},)"
      R"({"role":"assistant","content":null,"function_call":{"name":"f","arguments":"{}"}},)"
      R"({"role":"function","name":"f","content":"7"}]})");
  REQUIRE(chat.has_value());
  REQUIRE(chat->messages[1].tool_calls.size() == 1);
  CHECK(chat->messages[1].tool_calls[0].function.name == "f");
  CHECK(chat->messages[2].role == "tool");
}

TEST_CASE("a request has as many tools as agents send") {
  std::string tools;
  for (int i = 0; i < 300'000; ++i)  // 45 billion pairs of names
    tools += (i == 0 ? "" : ",") + std::string(R"({"function":{"name":"f)") + std::to_string(i) + "\"}}";
  CHECK(parse_chat_completion(R"({"messages":[{"role":"user","content":"a"}],"tools":[)" + tools + "]}")
            .has_value());
}
