#include "tests/engine/core/eval_lines.h"

#include <simdjson.h>

#include <fstream>

namespace quire::test {
namespace {

std::vector<TokenId> ids(simdjson::dom::element list) {
  std::vector<TokenId> values;
  for (const std::int64_t id : list.get_array()) values.push_back(static_cast<TokenId>(id));
  return values;
}

}  // namespace

std::vector<EvalLine> eval_lines(const std::string& model, double min_margin) {
  std::vector<EvalLine> lines;
  std::ifstream file(model + "/eval.jsonl");
  simdjson::dom::parser parser;
  for (std::string text; std::getline(file, text);) {
    const simdjson::dom::element row = parser.parse(text);
    if (static_cast<double>(row["margin"]) < min_margin) continue;
    lines.push_back({ids(row["prompt_ids"]), ids(row["reference_ids"]), row["margin"]});
  }
  return lines;
}

}  // namespace quire::test
