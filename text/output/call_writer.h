#pragma once
// Adds calls to deltas: id and name once, then arguments.

#include <optional>
#include <random>
#include <string>
#include <string_view>
#include <vector>

#include "text/output/dialect.h"
#include "text/output/output_delta.h"

namespace quire {

class CallWriter {
 public:
  int num_calls() const { return num_calls_; }
  // `written`: the id that the model gave, kept where it is its first call of that id.
  void begin(OutputDelta& delta, CallIds ids, const std::string& written, std::string name);
  void add(OutputDelta& delta, std::string_view arguments);

 private:
  std::string new_id(CallIds ids);

  int num_calls_ = 0;
  std::vector<std::string> written_;
  std::optional<std::mt19937_64> random_;
};

}  // namespace quire
