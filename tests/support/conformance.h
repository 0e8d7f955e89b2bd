#pragma once
// Conformance vectors: JSON files {"schema", "oracle", "cases": [...]} in tests/data/conformance,
// or in the folder that QUIRE_CONFORMANCE_DIR names.

#include <simdjson.h>

#include <functional>
#include <string>
#include <string_view>

namespace quire::test {

// What the vectors of other people's engines get wrong: {"vllm_defect": true, "defects": [...]}.
bool has_defect(simdjson::dom::element vector_case, std::string_view name);

// Throws, with a text that says what differs, where the case does not pass.
using CaseCheck = std::function<void(simdjson::dom::element vector_case)>;

// Thrown by a check where the reference does what is not to be followed: the rest of the case is no
// model. Such cases are counted apart, and there may be no more of them than are known.
struct CutShort {};

struct Tally {
  int files = 0;
  int passed = 0;
  int failed = 0;
  int cut_short = 0;
  std::string report;  // one line per file, and one per failed case

  int ran() const { return passed + failed + cut_short; }
};

// Runs every case of every file with this schema (such as "kv_plan/1") and prints passed, failed
// and cut short per file. tests/conformance_test.py holds each schema to a consumer.
Tally run_conformance(std::string_view schema, const CaseCheck& check);

// The same, and all must pass: at least `cases`, which is how many the repository has, and at most
// `cut_short` of a full set may end early.
void require_conformance(std::string_view schema, int cases, const CaseCheck& check,
                         int cut_short = 0);

// Throws if the two differ; what names the field.
void expect_equal(std::string_view what, const std::string& expected, const std::string& actual);
void expect_equal(std::string_view what, std::int64_t expected, std::int64_t actual);
void expect_close(std::string_view what, double expected, double actual);  // 1e-9, relative

}  // namespace quire::test
