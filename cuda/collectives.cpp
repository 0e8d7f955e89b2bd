// Collectives of devices, by NCCL: queued on a stream like a launch, and part of a graph where one
// is captured. Whether they are must be the same on all ranks.

#include <algorithm>
#include <atomic>
#include <cassert>
#include <chrono>
#include <cstring>
#include <future>
#include <mutex>
#include <thread>

#include "cuda/cuda_backend.h"
#include "cuda/cuda_traits.h"
#include "cuda/kernels/launchers.h"
#include "cuda/runtime/check.h"
#include "cuda/runtime/nccl.h"

namespace quire {
namespace {

using namespace quire::cuda;

// Joining waits without end for who does not come; then the thread that joins is left behind, in a
// process that is about to end.
ncclComm_t join(const CudaRank& rank, const std::function<void()>& check_others) {
  constexpr std::chrono::milliseconds kGlance{50};
  std::promise<ncclComm_t> promise;
  std::future<ncclComm_t> joined = promise.get_future();
  std::thread([rank, promise = std::move(promise)]() mutable {
    try {
      CUDA_CHECK(cudaSetDevice(rank.device));
      ncclUniqueId id;
      static_assert(sizeof id == sizeof rank.id);
      std::memcpy(&id, rank.id.data(), sizeof id);
      ncclComm_t comm = nullptr;
      check(ncclCommInitRank(&comm, rank.size, id, rank.rank), "ncclCommInitRank", nullptr);
      promise.set_value(comm);
    } catch (...) {
      promise.set_exception(std::current_exception());
    }
  }).detach();
  while (joined.wait_for(kGlance) != std::future_status::ready) check_others();
  return joined.get();
}

class CudaCollectives final : public Collectives {
 public:
  CudaCollectives(Device& device, const CudaRank& rank, std::function<void()> check_others)
      : rank_(rank.rank),
        size_(rank.size),
        check_others_(std::move(check_others)),
        parts_(device.allocate(kGatherBytes, MemoryPurpose::kernels)),
        comm_(join(rank, check_others_)) {}
  // Destroying it would wait for the others, who may be gone.
  ~CudaCollectives() override { abort(); }

  int rank() const override { return rank_; }
  int size() const override { return size_; }

  void all_reduce(TensorView x, StreamRef stream) override {
    assert(x.dtype() == DType::f32 && x.contiguous());
    if (x.numel() == 0) return;
    const auto count = static_cast<std::size_t>(x.numel());
    call("ncclAllReduce", [&] {
      return ncclAllReduce(x.data(), x.data(), count, ncclFloat32, ncclSum, comm_, native(stream));
    });
  }

  void gather_columns(TensorView out, TensorView part, std::int64_t width,
                      StreamRef stream) override {
    assert(part.dtype() == DType::f32);
    const std::int64_t rows = part.extent(0);
    const std::int64_t at_a_time =
        static_cast<std::int64_t>(kGatherBytes / sizeof(float)) / (size_ * width);
    if (at_a_time == 0)
      throw Failure(ErrorCode::internal, std::to_string(width) + " columns of each of " +
                                             std::to_string(size_) +
                                             " ranks are more than can be gathered");
    for (std::int64_t row = 0; row < rows; row += at_a_time) {
      const std::int64_t end = std::min(rows, row + at_a_time);
      gather_rows(out.empty() ? out : out.rows(row, end), part.rows(row, end), width, stream);
    }
  }

  void broadcast(TensorView x, StreamRef stream) override {
    assert(x.contiguous() && size_of(x.dtype()) == sizeof(std::int32_t));
    if (x.numel() == 0) return;
    const auto count = static_cast<std::size_t>(x.numel());
    call("ncclBroadcast", [&] {
      return ncclBroadcast(x.data(), x.data(), count, ncclInt32, 0, comm_, native(stream));
    });
  }

  // Whoever queues something lets go within moments, unless what it queues waits for who is gone.
  void abort() override {
    constexpr std::chrono::seconds kPatience{1};
    if (is_aborted_.exchange(true)) return;
    const bool is_mine = calls_.try_lock_for(kPatience);
    ncclCommAbort(comm_);
    if (is_mine) calls_.unlock();
  }

 private:
  // parts_ [ranks, rows, width], each rank's own in its place; then the rows of all side by side.
  void gather_rows(TensorView out, TensorView part, std::int64_t width, StreamRef stream) {
    const std::int64_t rows = part.extent(0);
    const TensorView parts(parts_.data(), DType::f32, {size_, rows, width});
    const TensorView own = parts.rows(rank_, rank_ + 1).reshape({rows, width});
    if (part.extent(1) > 0) copy(own.narrow(1, 0, part.extent(1)), part, stream);
    const auto count = static_cast<std::size_t>(rows * width);
    call("ncclAllGather", [&] {
      return ncclAllGather(own.data(), parts.data(), count, ncclFloat32, comm_, native(stream));
    });
    if (out.empty()) return;
    const std::int64_t whole = out.extent(1) / width, rest = out.extent(1) % width;
    const TensorView to = TensorView(out.data(), DType::f32, {rows, whole, width})
                              .with_strides({out.stride(0), width, 1});
    const TensorView from = TensorView(parts.data(), DType::f32, {rows, whole, width})
                                .with_strides({width, rows * width, 1});
    if (whole > 0) copy(to, from, stream);
    if (rest == 0) return;
    const TensorView last = parts.rows(whole, whole + 1).reshape({rows, width});
    copy(out.narrow(1, whole * width, out.extent(1)), last.narrow(1, 0, rest), stream);
  }

  template <class Call>
  void call(const char* name, const Call& queue) {
    const std::lock_guard lock(calls_);
    if (is_aborted_) {
      check_others_();
      throw Failure(ErrorCode::internal, std::string(name) + ": the ranks have been parted");
    }
    check(queue(), name, comm_);
  }

  const int rank_, size_;
  const std::function<void()> check_others_;
  const Buffer parts_;
  std::timed_mutex calls_;
  std::atomic<bool> is_aborted_ = false;
  const ncclComm_t comm_;
};

}  // namespace

std::string cuda_ranks_unavailable() { return nccl_unavailable(); }
std::string cuda_ranks_library() { return "NCCL " + nccl_version(); }

CudaRanksId make_cuda_ranks_id() {
  if (const std::string reason = nccl_unavailable(); !reason.empty())
    throw Failure(ErrorCode::unavailable, reason);
  ncclUniqueId id;
  check(ncclGetUniqueId(&id), "ncclGetUniqueId", nullptr);
  CudaRanksId bytes;
  std::memcpy(bytes.data(), &id, sizeof id);
  return bytes;
}

std::unique_ptr<Collectives> make_cuda_collectives(Device& device, const CudaRank& rank,
                                                   std::function<void()> check_others) {
  return std::make_unique<CudaCollectives>(device, rank, std::move(check_others));
}

}  // namespace quire
