#include <catch2/catch.hpp>

#include "tests/engine/structured/grammars.h"

namespace quire::structured {
namespace {

constexpr auto kSchema = GrammarSpec::Kind::json_schema;

TEST_CASE("what is not enforced is refused, with its place", "[structured][schema]") {
  struct Case {
    const char *schema, *refusal;
  };
  const auto c = GENERATE(values<Case>({
      {R"({"type":"integer","minimun":5})", "unsupported /minimun"},
      {R"({"properties":{"a":{"format":"no-such"}}})", "unsupported /properties/a/format"},
      {R"s({"$defs":{"x":{"pattern":"(?=a)"}},"$ref":"#/$defs/x"})s", "unsupported /$defs/x/pattern"},
      {R"({"items":{"uniqueItems":true,"items":{"type":"string"}}})", "unsupported /items/uniqueItems"},
      {R"({"$ref":"https://example.com/x"})", "unsupported /$ref"},
      {R"({"patternProperties":{"^\\p{L}$":true}})", "unsupported /patternProperties/^\\p{L}$"},
      {R"({"$dynamicRef":"#x"})", "unsupported /$dynamicRef"},
      {R"({"anyOf":[{"type":"strin"}]})", "syntax /anyOf/0/type"},
      {R"({"properties":{"a/b":{"minLength":-1}}})", "syntax /properties/a~1b/minLength"},
      {R"({"contentEncoding":"base32"})", "unsupported /contentEncoding"},
      {R"({"not":{"additionalProperties":false},"type":"object"})",
       "unsupported /not/additionalProperties"},
      {R"({"type":"string","enum":[1]})", "unsatisfiable "},
      {R"({"allOf":[{"pattern":"^a"},{"maxLength":0}],"type":"string"})", "unsatisfiable "},
      {"[", "syntax "},
  }));
  INFO(c.schema);
  CHECK(refusal(kSchema, c.schema) == c.refusal);
}

struct Fit {
  const char* schema;
  std::vector<std::string> yes, no;
};

void check(const Fit& c) {
  INFO(c.schema);
  const auto made = schema(c.schema);
  for (const std::string& text : c.yes) {
    INFO(text);
    CHECK(accepts(made, text));
  }
  for (const std::string& text : c.no) {
    INFO(text);
    CHECK_FALSE(accepts(made, text));
  }
}

TEST_CASE("schemas are merged, negated and counted", "[structured][schema]") {
  check({R"({"type":"string","pattern":"b","minLength":2,"maxLength":3})",
         {R"("ab")", R"("bxx")"}, {R"("b")", R"("aaa")", R"("abbb")"}});
  check({R"({"type":"string","pattern":"^[\"\\n]+$"})", {R"("\"\n")", R"("\u000a")"}, {R"("a")"}});
  check({R"({"type":"string","not":{"pattern":"^a"},"maxLength":3})",
         {R"("ba")", R"("")"}, {R"("ab")", R"("abcd")"}});
  check({R"({"type":"integer","not":{"multipleOf":3},"minimum":0,"maximum":10})",
         {"1", "10"}, {"0", "9", "11"}});
  check({R"({"oneOf":[{"type":"integer","multipleOf":2},{"type":"integer","multipleOf":3}]})",
         {"2", "9", "-4"}, {"6", "0", "5"}});
  check({R"({"type":"object","properties":{"a":{"type":"integer"},"b":{"type":"integer"}},"minProperties":1})",
         {R"({"a":1})", R"({"b":1})", R"({"a":1,"b":2})"}, {"{}"}});
  check({R"({"type":"object","maxProperties":2,"additionalProperties":{"type":"null"}})",
         {"{}", R"({"x":null,"y":null})"}, {R"({"x":null,"y":null,"z":null})"}});
  check({R"({"type":"object","required":["a","b"]})",
         {R"({"b":1,"c":2,"a":3})", R"({"a":1,"b":2})"}, {R"({"a":1})", R"({"a":1,"a":2,"b":3})"}});
  check({R"({"type":"array","items":{"enum":["a","b","c"]},"uniqueItems":true,"minItems":2})",
         {R"(["a","c"])", R"(["c","b","a"])"}, {R"(["a"])", R"(["a","a"])", R"(["a","b","a"])"}});
  check({R"({"type":"array","items":{"type":"integer"},"contains":{"minimum":10},"maxContains":2})",
         {"[10]", "[1,11,2,12]"}, {"[]", "[1,2]", "[10,11,12]"}});
  check({R"({"if":{"type":"string"},"then":{"maxLength":1},"else":{"type":"integer"}})",
         {R"("a")", "7"}, {R"("ab")", "null"}});
  check({R"({"properties":{"k":{"type":"string"}},"patternProperties":{"^x":{"type":"integer"}},)"
         R"("additionalProperties":{"type":"null"}})",
         {R"({"k":"v","x1":2,"y":null})"}, {R"({"x1":null})", R"({"y":2})", R"({"k":1})"}});
  check({R"({"type":"number","multipleOf":0.05,"exclusiveMinimum":-1,"maximum":1})",
         {"0.05", "-0.95", "1", "1.0"}, {"-1", "0.04", "1.05", "1e0"}});
}

TEST_CASE("an object that names its keys is closed, alternatives included", "[structured][schema]") {
  check({R"({"type":"object","properties":{"a":{}},"anyOf":[{"required":["a"]},{"required":["b"]}]})",
         {R"({"a":1})", R"({"a":1,"b":2})", R"({"b":2})"}, {"{}", R"({"a":1,"c":2})"}});
  check({R"({"oneOf":[{"properties":{"k":{"const":"a"},"x":{}},"required":["k"]},)"
         R"({"properties":{"k":{"const":"b"},"y":{}},"required":["k"]}],"type":"object"})",
         {R"({"k":"a","x":1})", R"({"k":"b","y":1})"}, {R"({"k":"a","y":1})"}});
}

TEST_CASE("white space is free, none, or what a pattern says", "[structured][schema]") {
  GrammarSpec spec;
  spec.kind = kSchema;
  spec.source = R"({"properties":{"a":{"type":"array","items":{"type":"integer"}}},"required":["a"]})";
  const std::string compact = R"({"a":[1,2]})", spaced = "{ \"a\" :\t[ 1 ,\n2 ] }";
  CHECK(accepts(CompiledGrammar::compile(spec, {}), compact));
  CHECK(accepts(CompiledGrammar::compile(spec, {}), spaced));
  spec.any_whitespace = false;
  CHECK(accepts(CompiledGrammar::compile(spec, {}), compact));
  CHECK_FALSE(accepts(CompiledGrammar::compile(spec, {}), spaced));
  spec.whitespace_pattern = " ?";
  CHECK(accepts(CompiledGrammar::compile(spec, {}), "{ \"a\": [1, 2] }"));
  CHECK_FALSE(accepts(CompiledGrammar::compile(spec, {}), spaced));
}

TEST_CASE("formats that makers of schemas write are enforced for numbers, too", "[structured][schema][format]") {
  check({R"({"type":"integer","format":"uint8","minimum":3})", {"3", "255"}, {"2", "256", "-1"}});
  check({R"({"type":["integer","string"],"format":"int32","maximum":1e12})",
         {"-2147483648", "2147483647", R"("any")"}, {"2147483648", "1.5"}});
  check({R"({"type":"number","format":"double","minimum":0.5})", {"0.5", "7"}, {"0.25"}});
  check({R"({"type":"integer","not":{"format":"int8"}})", {"128", "-129"}, {"127", "-128"}});
  check({R"({"type":"string","format":"uuid4"})", {R"("936DA01F-9ABD-4d9d-80C7-02AF85C822A8")"},
         {R"("936DA01F-9ABD-1d9d-80C7-02AF85C822A8")"}});
  check({R"({"type":"string","format":"ipvanyaddress"})", {R"("10.0.0.1")", R"("::1")"}, {R"("10.0")"}});
  check({R"({"type":"string","format":"password","minLength":1})", {R"("a\n b")"}, {R"("")"}});
  check({R"({"type":"string","format":"byte"})", {R"("")", R"("YQ==")"}, {R"("YQ=")"}});
  CHECK(refusal(kSchema, R"({"type":"integer","format":"no-such"})") == "unsupported /format");
  check({R"({"oneOf":[{"type":"object","properties":{"k":{"const":"a"}},"required":["k"]},
             {"type":"object","properties":{"k":{"const":"b"}},"required":["k"]}],
             "discriminator":{"propertyName":"k"}})", {R"({"k":"a"})", R"({"k":"b"})"}, {R"({"k":"c"})", "{}"}});
}

TEST_CASE("large units are multiples as long as few remainders matter", "[structured][schema]") {
  check({R"({"type":"integer","multipleOf":1000000})", {"0", "3000000", "-1000000"}, {"1", "1500000"}});
  check({R"({"type":"number","multipleOf":0.00000025,"minimum":0,"maximum":1})",
         {"0.5", "0.00000075"}, {"0.0000001", "1.00000025"}});
  CHECK(refusal(kSchema, R"({"type":"integer","multipleOf":0.123456789})") == "unsupported /multipleOf");
}

TEST_CASE("leap seconds, leap years and long hosts are told apart", "[structured][schema][format]") {
  check({R"({"type":"string","format":"date"})", {R"("0001-01-01")", R"("0400-02-29")", R"("2000-02-29")"},
         {R"("0000-01-01")", R"("0000-02-29")", R"("1900-02-29")"}});
  check({R"({"type":"string","format":"date-time"})",
         {R"("2024-02-29T23:59:60Z")", R"("1990-12-31T15:59:60-08:00")", R"("2024-01-31t01:00:60.5+01:01")"},
         {R"("2023-02-29T10:00:00Z")", R"("2024-02-29T22:59:60Z")", R"("1990-12-31T15:59:60-08:01")"}});
  const std::string label = std::string(63, 'a') + '.';
  check({R"({"type":"string","format":"hostname"})", {'"' + label + label + "a\""},
         {'"' + label + label + label + label + "a\"", "\"a-.b\""}});
}

TEST_CASE("structural tags leave the text free between their marks", "[structured][tags]") {
  const auto made = grammar(GrammarSpec::Kind::structural_tag,
                            R"({"structures":[{"begin":"<f=a>","schema":{"type":"integer"},"end":"</f>"},)"
                            R"({"begin":"<f=b>","schema":{"type":"null"},"end":"</f>"}],"triggers":["<f="]})");
  for (const char* text : {"plain", "x <f=a>12</f> y <f=b>null</f>", "a < b", ""}) {
    INFO(text);
    CHECK(accepts(made, text));
  }
  for (const char* text : {"x <f=c>", "<f=a>null</f>", "<f=a>1", "x <f="}) CHECK_FALSE(accepts(made, text));
  CHECK(refusal(GrammarSpec::Kind::structural_tag, R"({"structures":[],"triggers":["a"]})") ==
        "syntax /structures");
  CHECK(refusal(GrammarSpec::Kind::structural_tag,
                R"({"structures":[{"begin":"x","schema":{"type":"x"},"end":"y"}],"triggers":["x"]})") ==
        "syntax /structures/0/schema/type");
}

}  // namespace
}  // namespace quire::structured
