#include "engine/kv_transfer/pages/pushed_prefills.h"

#include <algorithm>
#include <utility>

#include "engine/kv_transfer/content/frames.h"

namespace quire {

PushedPrefills::Pushed& PushedPrefills::begin(const Request& request, const std::string& key) {
  const auto [entry, is_new] = pushed_.try_emplace(request.id());
  Pushed& pushed = entry->second;
  if (!is_new) return pushed;
  KeptPrefill& prefill = pushed.prefill;
  prefill.key = key;
  prefill.prompt_hash = prompt_hash(request.prompt());
  prefill.content = kv_content(geometry_, request.num_prompt());
  prefill.range = kept_.make_room(prefill.content.bytes);
  prefill.progress = std::make_shared<KvProgress>();
  if (prefill.range == nullptr) {
    kept_.fail(key, nullptr, KvLossReason::no_room);
    pushed.lost = true;
  } else if (!kept_.begin(prefill)) {  // another's: nothing is done to that one
    pushed.lost = true;
  }
  if (pushed.lost) prefill.range.reset();
  return pushed;
}

// What is ready is read by others at once.
void PushedPrefills::copy(Pushed& pushed, const BlockTable& blocks, int until) {
  if (pushed.lost || until <= pushed.copied) return;
  // Strip by strip: pages of several ranks read what is contiguous.
  const KvContent all = kv_rows(pushed.prefill.content, {pushed.copied, until});
  for (const KvStrip& strip : all.strips) {
    const KvContent rows{pushed.prefill.content.num_tokens, {strip}, strip.bytes()};
    if (pages_.read(rows, blocks, pushed.prefill.range->bytes())) continue;
    pages_.settle();  // strips before it may be under way
    kept_.fail(pushed.prefill.key, pushed.prefill.progress.get(), KvLossReason::refused);
    pushed.lost = true;
    return;
  }
  pages_.settle();
  pushed.copied = until;
}

void PushedPrefills::computed(const Request& request, const std::string& key,
                              const BlockTable& blocks, int num_computed) {
  Pushed& pushed = begin(request, key);
  // The last token's rows come with what is told when it ends: states are those behind it.
  const int until = std::min(num_computed, request.num_prompt() - 1);
  if (pushed.lost || until <= pushed.copied) return;
  copy(pushed, blocks, until);
  if (!pushed.lost) kept_.progressed(pushed.prefill, until);
}

bool PushedPrefills::finish(const Request& request, const std::string& key,
                            const BlockTable& blocks) {
  Pushed& pushed = begin(request, key);
  copy(pushed, blocks, request.num_prompt());
  const bool kept = !pushed.lost && kept_.finish(pushed.prefill);
  pushed_.erase(request.id());
  return kept;
}

void PushedPrefills::abandon(RequestId request, const std::string& key) {
  const auto found = pushed_.find(request);
  const bool has_begun = found != pushed_.end() && !found->second.lost;
  kept_.fail(key, has_begun ? found->second.prefill.progress.get() : nullptr,
             KvLossReason::refused);
  if (found != pushed_.end()) pushed_.erase(found);
}

}  // namespace quire
