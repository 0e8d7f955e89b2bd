// Flags of vLLM's that are short, or members of a JSON object behind a dot.

#include <catch2/catch.hpp>

#include "tests/app/args/some_flags.h"

namespace quire::test {

TEST_CASE("short and dotted names of vLLM's are the long flag's", "[app][args]") {
  const std::vector<std::vector<const char*>> taken = {
      {"-dpl", "1"},
      {"-asc", "1"},
      {"-dcp", "1"},
      {"--limit-mm-per-prompt.image", "4"},
      {"--structured-outputs-config.backend", "xgrammar"}};
  for (const auto& flag : taken) {
    INFO(flag.front());
    const Read args = read(flag);
    CHECK(args.words.empty());
    CHECK(args.without_effect.size() == 1);
  }
  CHECK(refusal({"-ep"}).starts_with("--enable-expert-parallel: no such flag; --tensor-parallel"));
  CHECK(read({"-O.cudagraph_mode=NONE"}).words == read({"-cc.cudagraph_mode", "NONE"}).words);
  CHECK(refusal({"--rope-scaling.factor", "2"}) ==
        "--rope-scaling.factor: no such flag; write rope_scaling into the model's config.json");
  CHECK(refusal({"--structured-outputs-config.backend=auto",
                 "--structured-outputs-config.disable_any_whitespace", "true"})
            .starts_with(R"(--structured-outputs-config: "{"backend":"auto",)"
                         R"("disable_any_whitespace":true}" is not offered)"));
  CHECK(refusal({"--max-num-seqs.x", "1"}).starts_with("--max-num-seqs.x: no such flag"));
}

TEST_CASE("dotted members make one object of JSON", "[app][args]") {
  const Read args = read({"-sc.method=ngram", "M", "--speculative-config.num_speculative_tokens",
                          "3", "--speculative_config.a_b.c", "x\"y", "--", "-z"});
  CHECK(args.words == Words{"M", "--speculative-config",
                            R"({"method":"ngram","num_speculative_tokens":3,)"
                            R"("a_b":{"c":"x\"y"}})",
                            "--", "-z"});
}

TEST_CASE("dotted members are added to the object that is given whole", "[app][args]") {
  Command command;
  CHECK(command
            .refusal({"-sc", R"({"a": 1, "b": {"c": 2.5, "d": [true, null]}, "e": "x"})", "M",
                      "-sc.b.c=3", "-sc.f", "4"})
            .empty());
  CHECK(command.json == R"({"a":1,"b":{"c":3,"d":[true,null]},"e":"x","f":4})");
  CHECK(command.model == "M");
  CHECK(refusal({"-sc", "7", "-sc.f=4"}) ==
        "--speculative-config: 7 is no JSON object, and has no members");
  CHECK(read({"--speculative-config", "null", "M"}).words == Words{"M"});
  CHECK(read({"-sc", R"({"a":1})", "M", "-sc=null"}).words == Words{"M"});
  CHECK(read({"-sc", "null", "-q", "x", "-sc={}", "-q", "y"}).words ==
        Words{"--speculative-config", "{}", "-q", "y"});
}

TEST_CASE("dotted objects go on, and counts are written as elsewhere", "[app][args]") {
  CHECK(read({"-cc.a", R"({"b": {"x": 1}})", "-cc.a.c", "5", "-cc.a.b", R"({"y":2})"}).words ==
        Words{"--compilation-config", R"({"a":{"b":{"x":1,"y":2},"c":5}})"});
  CHECK(read({"-cc.a.b.c=5", "-cc.a", R"({"q":1})", "-cc.d=1", "-cc.d.e=2"}).words ==
        Words{"--compilation-config", R"({"a":{"b":{"c":5},"q":1},"d":{"e":2}})"});
  CHECK(read({"-cc", R"({"a":1,"a":{}})", "-cc.a.b", "2"}).words ==
        Words{"--compilation-config", R"({"a":{"b":2}})"});
  CHECK(read({"-cc.a=1k", "-cc.b=2K", "-cc.c=1x"}).words ==
        Words{"--compilation-config", R"({"a":1000,"b":2048,"c":"1x"})"});
}

TEST_CASE("a dotted list may come in parts", "[app][args]") {
  CHECK(read({"-cc.custom_ops+", "none,+rms_norm", "-cc.custom_ops+=+silu", "-cc.sizes+=1,2"}).words ==
        Words{"--compilation-config", R"({"custom_ops":["none","+rms_norm","+silu"],"sizes":[1,2]})"});
  CHECK(read({"-cc", R"({"a":[]})", "-cc.a+", "b"}).words ==
        Words{"--compilation-config", R"({"a":["b"]})"});
}

}  // namespace quire::test
