#pragma once
// How much memory keys and values travel through, and how long a prompt it holds.

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "engine/config.h"
#include "engine/kv_transfer/content/geometry.h"
#include "model/kv_spec.h"

namespace quire {

struct TransferSizes {
  std::int64_t kept = 0, arriving = 0;  // bytes; 0: this engine keeps or fetches none
};

// As large as asked for, or for two prompts of longest_bytes and at most 1 GiB; the plan's own
// choice is twice that where whole blocks lie beside the rows that they become.
TransferSizes transfer_sizes(const KvTransferConfig& config, std::int64_t longest_bytes);

// What the longest prompt that fits the context leaves to whoever continues.
std::int64_t longest_prefill_bytes(std::span<const LayerKvSpec> layers, std::int64_t max_model_len);

// Over NIXL keeping copies one layer at a time: of the longest prompt.
std::int64_t nixl_scratch_bytes(const KvGeometry& geometry, int longest_prompt);

// Where prompts that fit the context do not fit the memory: from what length on, and what would
// hold the longest. Layers are in groups, as block_regions() takes them.
std::vector<std::string> transfer_notes(const KvTransferConfig& config, const KvGeometry& geometry,
                                        std::span<const int> group_of_layer,
                                        const TransferSizes& sizes, int longest_prompt);

}  // namespace quire
