#pragma once
// What a request's functions are called: in their order, each once, and found as fast among many,
// of which agents send thousands.

#include <string>
#include <string_view>
#include <unordered_set>
#include <vector>

namespace quire::openapi {

class ToolNames {
 public:
  // False where it is there already.
  bool add(std::string_view name) {
    if (!known_.emplace(name).second) return false;
    list_.emplace_back(name);
    return true;
  }
  bool has(std::string_view name) const { return known_.contains(std::string(name)); }
  bool empty() const { return list_.empty(); }
  const std::vector<std::string>& list() const { return list_; }

 private:
  std::vector<std::string> list_;
  std::unordered_set<std::string> known_;
};

}  // namespace quire::openapi
