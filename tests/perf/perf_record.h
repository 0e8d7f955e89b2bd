#pragma once
// A measurement as one JSON object on one line of stdout: what scripts/gpu-check collects.

#include <cmath>
#include <cstdio>
#include <string>

namespace quire::perf {

class Record {
 public:
  Record(const char* group, const std::string& name) {
    text("group", group);
    text("name", name);
  }
  ~Record() {
    std::printf("{%s}\n", fields_.c_str());
    std::fflush(stdout);
  }
  Record(const Record&) = delete;
  Record& operator=(const Record&) = delete;

  // Without quotes and backslashes.
  Record& text(const char* key, const std::string& value) { return add(key, '"' + value + '"'); }
  Record& number(const char* key, double value) {
    char digits[32];
    std::snprintf(digits, sizeof digits, "%.6g", value);
    return add(key, std::isfinite(value) ? digits : "null");
  }

 private:
  Record& add(const char* key, const std::string& value) {
    if (!fields_.empty()) fields_ += ", ";
    fields_ += '"' + std::string(key) + "\": " + value;
    return *this;
  }
  std::string fields_;
};

}  // namespace quire::perf
