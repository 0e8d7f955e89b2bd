#pragma once
// Which of a kept prefill's bytes a rank of whoever decodes over Mooncake has blocks for, as its
// regions say. Pure.

#include <cstdint>
#include <span>
#include <vector>

#include "engine/kv_mooncake/xfer_messages.h"
#include "engine/kv_transfer/mooncake/landing.h"

namespace quire {

// Which of the kept bytes one region of a rank holds.
struct MooncakeShare {
  std::size_t layer = 0;
  int block_size = 0;  // tokens of the kernel's; 0: a state
  int ratio = 1;       // of them in a block that is named
  int first_head = 0, num_heads = 0;
};

// Throws KvLost, naming what does not fit.
std::vector<MooncakeShare> mooncake_shares(const MooncakeSelf& self, const MooncakeAsk& ask);

void check_mooncake_ask(const MooncakeSelf& self, const MooncakeAsk& ask);
// By layer the first row of what is kept; of a state the last token. Rows of a window's block
// before it were not, and whoever does not read of that (`is_told`) would take zeros for them:
// throws KvLost.
std::vector<std::uint64_t> mooncake_first_rows(const KvContent& kept,
                                               std::span<const MooncakeShare> shares, bool is_told);

}  // namespace quire
