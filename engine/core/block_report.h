#pragma once
// Who holds which blocks of the KV cache, as the front end is told.

#include "engine/wire/messages.h"

namespace quire {

class KvCacheManager;
class Scheduler;

inline constexpr int kMostBlockCells = 4096;
inline constexpr int kMostBlockHolders = 1024;  // requests by groups; of more, the first

// Takes time with every block: for a person who looks, not for every step.
BlockReport block_report(const KvCacheManager& kv, const Scheduler& scheduler);

}  // namespace quire
