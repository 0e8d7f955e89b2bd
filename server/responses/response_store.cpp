#include "server/responses/response_store.h"

namespace quire {

namespace {

// About what it takes, with the containers' own.
std::size_t size_of(const StoredResponse& response) {
  constexpr std::size_t kEntry = 512;
  std::size_t size = kEntry + response.json.size();
  for (const openapi::ChatMessage& message : response.conversation) {
    size += sizeof message + message.role.size();
    for (const auto* text :
         {&message.content, &message.reasoning, &message.name, &message.tool_call_id}) {
      if (*text) size += (*text)->size();
    }
    size += message.part_breaks.size() * sizeof(std::size_t);
    for (const openapi::ToolCall& call : message.tool_calls) {
      size +=
          sizeof call + call.id.size() + call.function.name.size() + call.function.arguments.size();
    }
  }
  return size;
}

}  // namespace

void ResponseStore::drop(Entries::iterator entry) {
  bytes_ -= entry->bytes;
  by_key_.erase(entry->key);
  entries_.erase(entry);
}

void ResponseStore::keep(Owner owner, const std::string& id, StoredResponse response) {
  const std::size_t size = size_of(response);
  const std::scoped_lock lock(mutex_);
  Key key{owner, id};
  if (const auto old = by_key_.find(key); old != by_key_.end()) drop(old->second);
  if (size > limits_.bytes || limits_.count == 0) return;
  entries_.push_back({key, std::make_shared<const StoredResponse>(std::move(response)), size});
  by_key_[std::move(key)] = std::prev(entries_.end());
  bytes_ += size;
  while (bytes_ > limits_.bytes || entries_.size() > limits_.count) drop(entries_.begin());
}

std::shared_ptr<const StoredResponse> ResponseStore::find(Owner owner,
                                                          const std::string& id) const {
  const std::scoped_lock lock(mutex_);
  const auto found = by_key_.find({owner, id});
  return found == by_key_.end() ? nullptr : found->second->response;
}

bool ResponseStore::erase(Owner owner, const std::string& id) {
  const std::scoped_lock lock(mutex_);
  const auto found = by_key_.find({owner, id});
  if (found == by_key_.end()) return false;
  drop(found->second);
  return true;
}

std::size_t ResponseStore::bytes() const {
  const std::scoped_lock lock(mutex_);
  return bytes_;
}

}  // namespace quire
