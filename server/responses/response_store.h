#pragma once
// Responses that clients may ask for again or go on from, as long as there is room: the oldest go
// first. Each belongs to the key that it was made with; other keys do not find it. Any thread.

#include <cstddef>
#include <list>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "openapi/dto.h"
#include "server/config.h"

namespace quire {

struct StoredResponse {
  std::string json{};
  std::vector<openapi::ChatMessage> conversation{};  // what was asked and answered, no instructions
};

class ResponseStore {
 public:
  // Only compared; null: of everyone, where the server has no keys.
  using Owner = const void*;

  explicit ResponseStore(StoredResponses limits) : limits_(limits) {}

  // A response that is larger than all the room is not kept.
  void keep(Owner owner, const std::string& id, StoredResponse response);
  std::shared_ptr<const StoredResponse> find(Owner owner, const std::string& id) const;  // or null
  bool erase(Owner owner, const std::string& id);
  std::size_t bytes() const;

 private:
  using Key = std::pair<Owner, std::string>;
  struct Entry {
    Key key;
    std::shared_ptr<const StoredResponse> response;
    std::size_t bytes = 0;
  };
  using Entries = std::list<Entry>;

  void drop(Entries::iterator entry);

  const StoredResponses limits_;
  mutable std::mutex mutex_;
  Entries entries_;  // oldest first
  std::map<Key, Entries::iterator> by_key_;
  std::size_t bytes_ = 0;
};

}  // namespace quire
