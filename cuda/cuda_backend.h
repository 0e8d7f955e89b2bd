#pragma once
// The CUDA backend's factories; app/ and the tests are their only callers. No CUDA header in here.

#include <array>
#include <cstddef>
#include <functional>
#include <memory>
#include <string>

#include "backend/collectives.h"
#include "backend/device.h"
#include "backend/ops.h"

namespace quire {

struct CudaOptions {
  int device = 0;
};

// Why there is no CUDA device to use (no driver, no device, no cuBLASLt), in one sentence; empty
// when there is one.
std::string cuda_unavailable();

// What this device could use and its driver does not have, in one sentence; slower kernels run
// instead. Empty when nothing is missing. For a device that can be used.
std::string cuda_lacks();

// Throws Failure when the device cannot be used. Ops live no longer than the device.
std::unique_ptr<Device> make_cuda_device(const CudaOptions& options);
struct CudaOpsOptions {
  // Where measured choices of products are kept from one start to the next (gemm_choices.h); empty:
  // nowhere.
  std::string choices_folder = {};
  // Sentences for a log: what was chosen, which products the library refuses. Optional.
  std::function<void(const std::string&)> report = {};
  // For which Ops::begin_choosing() to end_choosing() may measure products, at most.
  double choosing_seconds = 2.5;
};
std::unique_ptr<Ops> make_cuda_ops(Device& device, const CudaOpsOptions& options = {});
// What CUDA's operators support; can be asked on machines without CUDA, too.
const OpsTraits& cuda_traits();

// Devices that this process sees.
int num_cuda_devices();

// Ranks on devices of one machine, a process each. NCCL brings them together.
using CudaRanksId = std::array<std::byte, 128>;
struct CudaRank {
  CudaRanksId id;  // of make_cuda_ranks_id(), the same for all of them
  int rank = 0, size = 1;
  int device = 0;  // what make_cuda_device() was given
};
// Why there can be none (no NCCL, or too old a one), in one sentence; empty when they can.
std::string cuda_ranks_unavailable();
// Name and version of the library of the ranks: "NCCL 2.27.3".
std::string cuda_ranks_library();
// Throws Failure. Called once, by one of them.
CudaRanksId make_cuda_ranks_id();
// Waits for the other ranks, and meanwhile calls `check` every now and then, which throws where
// they will not come; so do collectives once they are aborted. They live no longer than the device.
std::unique_ptr<Collectives> make_cuda_collectives(Device& device, const CudaRank& rank,
                                                   std::function<void()> check);

}  // namespace quire
