// Grammars: grammar_perf CASES.jsonl prints the compile time of every schema and the time of a mask
// before every token of a text. grammar_peers.py writes the cases and runs the peers on the same ones.
// First line: {"vocab": ["hex", …], "eos": id}; each other one: {"schema": …, "ids": […]}.

#include <fmt/format.h>

#include <algorithm>
#include <boost/json.hpp>
#include <ctime>
#include <fstream>
#include <iostream>

#include "engine/structured/compiled_grammar.h"

namespace quire::structured {
namespace {

namespace json = boost::json;
// CPU time: what else runs on the machine does not count.
double now() {
  timespec time{};
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &time);
  return 1e6 * static_cast<double>(time.tv_sec) + 1e-3 * static_cast<double>(time.tv_nsec);
}

double micros(double from) { return now() - from; }

void print(const char* name, std::vector<double> times) {
  if (times.empty()) return;
  std::sort(times.begin(), times.end());
  double sum = 0;
  for (const double time : times) sum += time;
  const auto at = [&](double p) {
    return times[std::min(times.size() - 1, static_cast<std::size_t>(p * static_cast<double>(times.size())))];
  };
  fmt::print("{}: n {} p50 {:.1f} p90 {:.1f} p99 {:.1f} max {:.1f} mean {:.1f} µs\n", name,
             times.size(), at(0.5), at(0.9), at(0.99), times.back(),
             sum / static_cast<double>(times.size()));
}

std::string unhex(std::string_view hex) {
  std::string bytes;
  for (std::size_t i = 0; i + 1 < hex.size(); i += 2) {
    bytes += static_cast<char>(std::stoi(std::string(hex.substr(i, 2)), nullptr, 16));
  }
  return bytes;
}

int run(const char* path) {
  std::ifstream file(path);
  std::string line;
  std::getline(file, line);
  const json::object head = json::parse(line).as_object();
  std::vector<std::string> bytes;
  for (const json::value& token : head.at("vocab").as_array()) bytes.push_back(unhex(token.as_string()));
  const auto from = now();
  GrammarContext context;
  context.vocabulary = std::make_shared<const Vocabulary>(
      std::move(bytes), std::vector<TokenId>{head.at("eos").to_number<TokenId>()});
  context.warm();
  fmt::print("vocabulary: {} tokens, {:.0f} ms\n", context.vocabulary->size(), micros(from) / 1000);
  std::vector<double> compile, masks;
  std::vector<std::uint32_t> words(context.vocabulary->words());
  std::size_t refused = 0;
  while (std::getline(file, line)) {
    json::parse_options options;
    options.max_depth = 500;
    const json::object one = json::parse(line, {}, options).as_object();
    GrammarSpec spec;
    spec.kind = GrammarSpec::Kind::json_schema;
    spec.source = json::serialize(one.at("schema"));
    try {
      auto start = now();
      const auto grammar = CompiledGrammar::compile(spec, context);
      compile.push_back(micros(start));
      GrammarMatcher matcher(grammar);
      for (const json::value& id : one.at("ids").as_array()) {
        start = now();
        matcher.fill_mask(words);
        masks.push_back(micros(start));
        if (!matcher.accept(id.to_number<TokenId>())) {
          fmt::print("not accepted: {}\n", line.substr(0, 200));
          break;
        }
      }
    } catch (const GrammarFailure& failure) {
      ++refused;
      fmt::print("refused: {} {}\n", failure.what(), failure.pointer());
    }
  }
  fmt::print("refused: {}\n", refused);
  print("compile", compile);
  print("mask", masks);
  return 0;
}

}  // namespace
}  // namespace quire::structured

int main(int argc, char** argv) {
  if (argc != 2) {
    std::cerr << "usage: grammar_perf CASES.jsonl\n";
    return 2;
  }
  return quire::structured::run(argv[1]);
}
