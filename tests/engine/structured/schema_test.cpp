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
      {R"({"items":{"uniqueItems":true,"items":{"type":"object"}}})", "unsupported /items/uniqueItems"},
      {R"({"$ref":"https://example.com/x"})", "unsupported /$ref"},
      {R"({"patternProperties":{"^\\p{L}$":true}})", "unsupported /patternProperties/^\\p{L}$"},
      {R"({"$dynamicRef":"#x"})", "unsupported /$dynamicRef"},
      {R"({"anyOf":[{"type":"strin"}]})", "syntax /anyOf/0/type"},
      {R"({"properties":{"a/b":{"minLength":-1}}})", "syntax /properties/a~1b/minLength"},
      {R"({"contentEncoding":"base32"})", "unsupported /contentEncoding"},
      {R"({"not":{"additionalProperties":false},"type":"object"})",
       "unsupported /not/additionalProperties"},
      {R"({"type":"string","enum":[1]})", "unsatisfiable "},
      {R"({"type":"array","not":{"const":[1]}})", "unsupported /not/const"},
      {R"({"not":{"enum":[1,{"a":1}]}})", "unsupported /not/enum"},
      {R"({"oneOf":[{"const":{"a":1}},{"type":"object"}]})", "unsupported /oneOf/0/const"},
      {R"({"allOf":[{"pattern":"^a"},{"maxLength":0}],"type":"string"})", "unsatisfiable "},
      {R"({"type":"integer","maximum":18446744073709551616})", "unsupported /maximum"},
      {R"({"properties":{"a":{"exclusiveMinimum":-9223372036854775809}}})", "unsupported /properties/a/exclusiveMinimum"},
      {R"({"type":"number","multipleOf":0.12345678901234567890})", "unsupported /multipleOf"},
      {R"({"enum":[1,[18446744073709551616]]})", "unsupported /enum"},
      {R"({"const":{"a":-9223372036854775809}})", "unsupported /const"},
      {R"({"minLength":18446744073709551616})", "unsupported /minLength"},
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
  check({R"({"type":"array","not":{"const":[]}})", {"[1]"}, {"[]"}});
  check({R"({"type":["object","null"],"not":{"enum":[{}]}})", {R"({"a":1})", "null"}, {"{}"}});
  check({R"({"if":{"const":{}},"then":{"minProperties":1},"type":"object"})", {R"({"a":1})"}, {"{}"}});
  check({R"({"oneOf":[{"enum":[[],1]},{"type":"array"}]})", {"1", "[1]"}, {"[]", "2"}});
  check({R"({"type":"string","not":{"const":[1]}})", {R"("a")"}, {"[1]"}});
  check({R"({"enum":[{"a":1},{"a":2},[3]],"not":{"enum":[{"a":1},[3]]}})", {R"({"a":2})"}, {R"({"a":1})", "[3]"}});
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
  check({R"({"type":"integer","format":"unix-time","minimum":3})", {"3"}, {"2", "3.5"}});
  CHECK(refusal(kSchema, R"({"type":["integer","string"],"format":"no-such"})") ==
        "unsupported /format");
  check({R"({"oneOf":[{"type":"object","properties":{"k":{"const":"a"}},"required":["k"]},
             {"type":"object","properties":{"k":{"const":"b"}},"required":["k"]}],
             "discriminator":{"propertyName":"k"}})", {R"({"k":"a"})", R"({"k":"b"})"}, {R"({"k":"c"})", "{}"}});
}

TEST_CASE("times end where readers stop, and hosts may be several", "[structured][schema][format]") {
  check({R"({"format":"date-time","type":"string"})",
         {R"("2024-02-29T01:02:03.123456789Z")", R"("1998-12-31T23:59:60Z")"},
         {R"("2024-02-29T01:02:03.1234567890Z")"}});
  check({R"({"format":"duration","type":"string"})", {R"("P999999D")", R"("PT1H30M")"},
         {R"("P1000000D")", R"("PT1000000S")"}});
  check({R"({"format":"multi-host-uri","type":"string"})",
         {R"("postgres://u:p@a:5432,b:5433/db?x=1")", R"("mongodb://a")"}, {R"("a,b")"}});
  check({R"({"format":"name-email","type":"string"})", {R"("Ada Lovelace <a@b.c>")", R"("a@b.c")"},
         {R"("Ada a@b.c")"}});
}

TEST_CASE("what zod and pydantic write beside a format is enforced", "[structured][schema][format]") {
  check({R"s({"type":"string","format":"email","pattern":"^(?!\\.)(?!.*\\.\\.)([A-Za-z0-9_'+\\-\\.]*)[A-Za-z0-9_+-]@([A-Za-z0-9][A-Za-z0-9\\-]*\\.)+[A-Za-z]{2,}$"})s",
         {R"("a.b@c.de")", R"("a@b-c.d.org")"}, {R"("a..b@c.de")", R"(".a@c.de")", R"("a.@c.de")", R"("a@c")"}});
  check({R"s({"type":"string","format":"time","pattern":"^(?:[01]\\d|2[0-3]):[0-5]\\d(?::[0-5]\\d(?:\\.\\d+)?)?$"})s",
         {R"("10:20:30")", R"("10:20")"}, {R"("10:20:30Z")", R"("24:00")"}});
  check({R"s({"type":"string","format":"duration","pattern":"^P(?:(\\d+W)|(?!.*W)(?=\\d|T\\d)(\\d+Y)?(\\d+M)?(\\d+D)?(T(?=\\d)(\\d+H)?(\\d+M)?(\\d+([.,]\\d+)?S)?)?)$"})s",
         {R"("P3W")", R"("P1Y2M")", R"("PT5S")"}, {R"("P")", R"("P1DT")", R"("P1W2D")"}});
  check({R"s({"type":"string","format":"ulid","pattern":"^[0-9A-HJKMNP-TV-Z]{26}$"})s", {R"("01ARZ3NDEKTSV4RRFFQ69G5FAV")"}, {R"("x")"}});
  check({R"({"type":"string","format":"ipv4network"})", {R"("10.0.0.0/8")", R"("1.2.3.4")", R"("10.1.16.0/20")", R"("0.0.0.0/0")"},
         {R"("10.0.0.1/8")", R"("10.1.8.0/20")", R"("1.2.3.4/33")"}});
  check({R"({"type":"string","format":"ipv6network"})", {R"("2001:db8::/32")", R"("::/0")", R"("::1/128")"},
         {R"("2001:db8::1/32")", R"("2001:db8::/16")", R"("::/129")"}});
  check({R"({"type":"string","format":"ipv4interface"})", {R"("10.0.0.1/8")", R"("10.0.0.1")"}, {R"("10.0.0.1/33")"}});
  check({R"({"type":"string","format":"regex"})", {R"("^a(b|[c-d]+)?\\d{2,}$")", R"("")", R"("(?:x)*")"},
         {R"("(")", R"("[")", R"("*a")", R"("a{2,1}")", R"("a**")"}});
  check({R"({"type":"string","format":"base64url"})", {R"("a-_b")", R"("YQ")"}, {R"("a+/b")"}});
}

TEST_CASE("bounds beyond 64 bits hold to their last digit", "[structured][schema]") {
  const std::string zeros(30, '0'), nines(30, '9'), above = "1" + zeros.substr(1) + "1";
  for (const std::string& bound : std::vector<std::string>{"1e30", "1" + zeros}) {
    const std::string most = R"({"type":"integer","maximum":)" + bound + "}", least = R"({"type":"integer","minimum":)" + bound + "}";
    check({most.c_str(), {"1" + zeros, nines, "-1" + zeros + "0"}, {above, "1" + zeros + "0"}});
    check({least.c_str(), {"1" + zeros, above}, {nines, "-1" + zeros}});
  }
  check({R"({"const":1e30})", {"1" + zeros}, {"1000000000000000019884624838656", "1e30"}});
  check({R"({"minimum":5e-324,"maximum":1.7976931348623157e308,"type":"number"})", {"1", "0.5"}, {"0", "-1", "0.0"}});
  check({R"({"exclusiveMinimum":1e-320,"minimum":0,"type":"number"})", {"1"}, {"0"}});
  check({R"({"type":"integer","minimum":9007199254740993,"exclusiveMinimum":9007199254740992})", {"9007199254740993"}, {"9007199254740992"}});
  check({R"({"type":"array","uniqueItems":true,"items":{"type":"integer","minimum":3,"maximum":2}})", {"[]"}, {"[3]"}});
  CHECK(refusal(kSchema, R"({"type":"array","uniqueItems":true,"items":{"type":"integer","minimum":1e30}})") == "");
}

TEST_CASE("nullable allows null whatever stands beside it", "[structured][schema]") {
  check({R"({"$defs":{"x":{"type":"integer"}},"$ref":"#/$defs/x","nullable":true})", {"1", "null"}, {"\"a\""}});
  check({R"({"allOf":[{"type":"integer"}],"nullable":true})", {"1", "null"}, {"1.5"}});
  check({R"({"type":"string","enum":["a"],"nullable":true})", {"\"a\"", "null"}, {"\"b\"", "1"}});
  check({R"({"oneOf":[{"type":"integer"},{"type":"boolean"}],"nullable":true})", {"1", "true", "null"}, {"\"b\""}});
  check({R"({"type":"object","properties":{"a":{"type":"string"}},"nullable":true})", {"{}", "null"}, {"{\"b\":1}"}});
  check({R"({"type":"string","nullable":false})", {"\"a\""}, {"null"}});
}

TEST_CASE("what vendors and editors add asserts nothing", "[structured][schema]") {
  check({R"({"type":"object","x-order":1,"properties":{"a":{"type":"string","x-ui":{"b":1},"maxLength":1,
             "markdownDescription":"m","contentMediaType":"application/json","contentSchema":{"type":"object"}}},"required":["a"]})",
         {R"({"a":"b"})"}, {R"({"a":"bc"})", "{}"}});
  CHECK(refusal(kSchema, R"({"type":"string","maxLenght":1})") == "unsupported /maxLenght");
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

TEST_CASE("formats of tags are repeated, and end in one of several ways", "[structured][tags]") {
  const auto made = [](const std::string& format) {
    return grammar(GrammarSpec::Kind::structural_tag, R"({"format":)" + format + "}");
  };
  const std::string x = R"("content":{"type":"regex","pattern":"x"})";
  const auto star = made(R"({"type":"star",)" + x + "}"), plus = made(R"({"type":"plus",)" + x + "}");
  const auto optional = made(R"({"type":"optional",)" + x + "}");
  const auto repeat = made(R"({"type":"repeat","min":2,"max":3,)" + x + "}");
  for (int count = 0; count < 6; ++count) {
    const std::string text(static_cast<std::size_t>(count), 'x');
    CHECK(accepts(star, text));
    CHECK(accepts(plus, text) == (count > 0));
    CHECK(accepts(optional, text) == (count < 2));
    CHECK(accepts(repeat, text) == (count == 2 || count == 3));
  }
  CHECK(refusal(GrammarSpec::Kind::structural_tag, R"({"format":{"type":"repeat","min":3,"max":2,)" + x + "}}") == "syntax /format/min");
  const auto tag = made(R"({"type":"tag","begin":"<","content":{"type":"any_text"},"end":[">","/>"]})");
  for (const char* text : {"<a>", "<a/>", "<>"}) CHECK(accepts(tag, text));
  for (const char* text : {"<a", "<a>b>"}) CHECK_FALSE(accepts(tag, text));
}

TEST_CASE("a tag that must come comes at once", "[structured][tags]") {
  const std::string tags = R"({"format":{"type":"triggered_tags","triggers":["<a"],"tags":[{"type":"tag","begin":"<a>","content":{"type":"const_string","value":"q"},"end":"</a>"}],"at_least_one":true,"stop_after_first":)";
  const auto one = grammar(GrammarSpec::Kind::structural_tag, tags + "true}}");
  const auto many = grammar(GrammarSpec::Kind::structural_tag, tags + "false}}");
  for (const auto& made : {one, many}) {
    CHECK(accepts(made, "<a>q</a>"));
    for (const char* text : {"", "x", "hello <a>q</a>"}) CHECK_FALSE(accepts(made, text));
  }
  CHECK_FALSE(accepts(one, "<a>q</a> and"));
  CHECK(accepts(many, "<a>q</a> and <a>q</a>!"));
}

TEST_CASE("schemas that are not strict are enforced as far as they can be", "[structured][tags]") {
  const auto tag = [](const std::string& schema, const std::string& more) {
    return R"({"format":{"type":"json_schema","place":"/t","json_schema":)" + schema + "}" + more + "}";
  };
  const auto kind = GrammarSpec::Kind::structural_tag;
  const std::string lenient = R"(,"not_strict":["/t"])";
  const std::string schema =
      R"s({"type":"object","properties":{"a":{"type":"array","items":{"type":["string","array"],"maxLength":1},"uniqueItems":true},"b":{"pattern":"(?<!x)y","type":"string"},"c":{"$ref":"https://x.y/z"},"d":{"frob":1,"const":3}},"required":["a","b","c","d"]})s";
  CHECK(refusal(kind, tag(schema, "")) == "unsupported /t/properties/c/$ref");
  const auto made = grammar(kind, tag(schema, lenient));
  CHECK(accepts(made, R"({"a":["x","x"],"b":"z","c":[1],"d":3})"));
  for (const char* text : {R"({"a":["xx"],"b":"z","c":1,"d":3})", R"({"a":[],"b":"z","c":1,"d":4})", R"({"a":[],"b":1,"c":1,"d":3})"}) {
    INFO(text);
    CHECK_FALSE(accepts(made, text));
  }
  const auto null = grammar(kind, tag(R"({"type":"object","required":null,"additionalProperties":{"type":"null"}})", lenient));
  CHECK(accepts(null, R"({"k":null})"));
  CHECK_FALSE(accepts(null, R"({"k":1})"));
  // Too costly: any object.
  const auto costly = grammar(kind, tag(R"s({"type":"object","properties":{"a":{"type":"string","pattern":"a{2000000}"}}})s", lenient));
  CHECK(accepts(costly, R"({"b":1})"));
  CHECK_FALSE(accepts(costly, "[]"));
  // What is wrong for any reader stays wrong.
  CHECK(refusal(kind, tag(R"({"type":"objec"})", lenient)) == "syntax /t/type");
  CHECK(refusal(kind, tag(R"({"type":"integer","minimum":3,"maximum":2})", lenient)).starts_with("unsatisfiable"));
}

TEST_CASE("of a schema for arguments only objects come", "[structured][tags]") {
  const auto arguments = [](const std::string& schema, bool lenient) {
    const std::string more = lenient ? R"(,"not_strict":["/t"])" : "";
    return R"({"format":{"type":"json_schema","only_objects":true,"place":"/t","json_schema":)" + schema + "}" + more + "}";
  };
  const auto kind = GrammarSpec::Kind::structural_tag;
  for (const bool lenient : {false, true}) {
    for (const char* schema :
         {R"({"anyOf":[{"type":"object","properties":{"a":{"const":1}},"required":["a"]},{"type":"string"}]})",
          R"({"$ref":"#/$defs/A","$defs":{"A":{"anyOf":[{"type":"object","properties":{"a":{"const":1}},"required":["a"]},{"type":"integer"}]}}})",
          R"({"enum":["x",{"a":1},[1]]})", R"({"properties":{"a":{"const":1}},"required":["a"]})"}) {
      INFO(schema);
      const auto made = grammar(kind, arguments(schema, lenient));
      CHECK(accepts(made, R"({"a":1})"));
      for (const char* text : {R"("a")", "1", "[1]", "null", R"("x")"}) CHECK_FALSE(accepts(made, text));
    }
    CHECK(accepts(grammar(kind, arguments("true", lenient)), R"({"b":[1]})"));
    CHECK_FALSE(accepts(grammar(kind, arguments("{}", lenient)), "[1]"));
    CHECK(refusal(kind, arguments(R"({"type":"string"})", lenient)).starts_with("unsatisfiable"));
  }
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
