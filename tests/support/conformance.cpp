#include "tests/support/conformance.h"

#include <catch2/catch.hpp>

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <filesystem>
#include <iostream>
#include <stdexcept>
#include <vector>

namespace quire::test {
namespace {

namespace fs = std::filesystem;

fs::path conformance_folder() {
  const char* folder = std::getenv("QUIRE_CONFORMANCE_DIR");
  return folder != nullptr ? fs::path(folder) : fs::path("tests/data/conformance");
}

std::vector<fs::path> json_files(const fs::path& folder) {
  std::vector<fs::path> files;
  for (const auto& entry : fs::directory_iterator(folder))
    if (entry.path().extension() == ".json") files.push_back(entry.path());
  std::sort(files.begin(), files.end());
  return files;
}

std::string name_of_case(simdjson::dom::element vector_case) {
  std::string_view name;
  return vector_case["name"].get(name) == simdjson::SUCCESS ? std::string(name) : "(unnamed)";
}

void run_file(const fs::path& file, simdjson::dom::array cases, const CaseCheck& check,
              Tally& tally) {
  int passed = 0, failed = 0, cut_short = 0;
  std::string failures;
  for (const simdjson::dom::element vector_case : cases) {
    try {
      check(vector_case);
      ++passed;
    } catch (const CutShort&) {
      ++cut_short;
      failures += "  " + name_of_case(vector_case) + ": cut short\n";
    } catch (const std::exception& e) {
      ++failed;
      failures += "  " + name_of_case(vector_case) + ": " + e.what() + "\n";
    }
  }
  const std::string line = file.filename().string() + ": " + std::to_string(passed) + " passed, " +
                           std::to_string(failed) + " failed, " + std::to_string(cut_short) +
                           " cut short\n" + failures;
  std::cout << line;
  tally.report += line;
  tally.files += 1;
  tally.passed += passed;
  tally.failed += failed;
  tally.cut_short += cut_short;
}

}  // namespace

bool has_defect(simdjson::dom::element vector_case, std::string_view name) {
  simdjson::dom::array defects;
  if (vector_case["defects"].get(defects) != simdjson::SUCCESS) return false;
  for (const simdjson::dom::element defect : defects)
    if (std::string_view(defect) == name) return true;
  return false;
}

Tally run_conformance(std::string_view schema, const CaseCheck& check) {
  Tally tally;
  for (const fs::path& file : json_files(conformance_folder())) {
    simdjson::dom::parser parser;
    const simdjson::dom::element root = parser.load(file.string());
    std::string_view name;
    if (root["schema"].get(name) != simdjson::SUCCESS || name != schema) continue;
    run_file(file, root["cases"], check, tally);
  }
  return tally;
}

void require_conformance(std::string_view schema, int cases, const CaseCheck& check,
                         int cut_short) {
  const Tally tally = run_conformance(schema, check);
  INFO(tally.report);
  CHECK(tally.failed == 0);
  CHECK(tally.ran() >= cases);
  CHECK(tally.cut_short <= cut_short);
}

void expect_equal(std::string_view what, const std::string& expected, const std::string& actual) {
  if (expected != actual)
    throw std::runtime_error(std::string(what) + ": expected " + expected + ", got " + actual);
}

void expect_equal(std::string_view what, std::int64_t expected, std::int64_t actual) {
  expect_equal(what, std::to_string(expected), std::to_string(actual));
}

void expect_close(std::string_view what, double expected, double actual) {
  if (std::abs(expected - actual) > 1e-9 * std::max(std::abs(expected), std::abs(actual)))
    expect_equal(what, std::to_string(expected), std::to_string(actual));
}

}  // namespace quire::test
