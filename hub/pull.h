#pragma once
// A model from the Hub into the cache: only the files that are served from, several at a time, each
// from where an earlier try broke off, and none that is not what its hash says.

#include <atomic>
#include <cstdint>
#include <filesystem>
#include <functional>
#include <string>
#include <vector>

#include "hub/api.h"
#include "hub/cache.h"

namespace quire::hub {

// Read by others while pull() runs.
struct PullProgress {
  std::atomic<std::uint64_t> total{0};     // bytes of all files that are known to be needed
  std::atomic<std::uint64_t> present{0};   // of them on this disk, earlier ones included
  std::atomic<std::uint64_t> received{0};  // bytes that came over the network
  std::atomic<int> files{0};
  std::atomic<int> files_done{0};
};

struct PullOptions {
  int parallel = 4;  // files at a time
};

// Returns the model's folder. Throws Failure; what was received stays for the next try.
std::filesystem::path pull(const Hub& hub, const Cache& cache, const ModelName& name,
                           const PullOptions& options, PullProgress& progress);

// Files beside the weights that a model is served from.
bool is_needed(const std::string& path);

// The weights of a repository: model.safetensors, which serving prefers, or what the index in
// `folder` names, or without one what is numbered; none where that is not all there.
std::vector<RepoFile> weights_of(const RepoInfo& info, const std::filesystem::path& folder);

}  // namespace quire::hub
