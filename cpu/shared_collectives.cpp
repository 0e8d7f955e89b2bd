#include "cpu/shared_collectives.h"

#include <algorithm>
#include <atomic>
#include <cassert>
#include <chrono>
#include <cstring>

namespace quire {
namespace {

// A rank has two buffers and uses them in turn. Whoever waits until all have filled the next one
// knows that they have read this one: one wait per exchange is enough.
constexpr std::int64_t kBufferFloats = std::int64_t{1} << 18;

// One rank's part of the memory.
struct Rank {
  SharedCount filled;
  std::atomic<std::int64_t> waited;  // nanoseconds
  alignas(64) float buffers[2][kBufferFloats];
};

static_assert(sizeof(Rank) == kSharedCollectivesBytes);

class SharedCollectives final : public Collectives {
 public:
  SharedCollectives(std::byte* memory, SharedFate& fate, int rank, int size)
      : ranks_(reinterpret_cast<Rank*>(memory)),
        fate_(fate),
        rank_(rank),
        size_(size),
        turn_(ranks_[rank].filled.value()) {}

  int rank() const override { return rank_; }
  int size() const override { return size_; }

  void all_reduce(TensorView x, StreamRef) override {
    assert(x.dtype() == DType::f32 && x.contiguous());
    auto* const all = static_cast<float*>(x.data());
    for (std::int64_t done = 0; done < x.numel(); done += kBufferFloats) {
      const std::int64_t count = std::min(kBufferFloats, x.numel() - done);
      std::memcpy(own_buffer(), all + done, static_cast<std::size_t>(count) * sizeof(float));
      exchange();
      std::memcpy(all + done, buffer(0), static_cast<std::size_t>(count) * sizeof(float));
      for (int r = 1; r < size_; ++r) add(all + done, buffer(r), count);
    }
  }

  void gather_columns(TensorView out, TensorView part, std::int64_t width, StreamRef) override {
    const std::int64_t rows = part.extent(0), columns = std::min(width, kBufferFloats);
    const std::int64_t at_a_time = kBufferFloats / columns;
    for (std::int64_t row = 0; row < rows; row += at_a_time) {
      const std::int64_t end = std::min(rows, row + at_a_time);
      for (std::int64_t column = 0; column < width; column += columns) {
        write(part, row, end, column, std::min(columns, width - column));
        exchange();
        for (int r = 0; !out.empty() && r < size_; ++r)
          read(out, r, width, row, end, column, std::min(columns, width - column));
      }
    }
  }

  void broadcast(TensorView x, StreamRef) override {
    assert(x.contiguous() && size_of(x.dtype()) == sizeof(float));
    auto* const all = static_cast<float*>(x.data());
    for (std::int64_t done = 0; done < x.numel(); done += kBufferFloats) {
      const auto bytes =
          static_cast<std::size_t>(std::min(kBufferFloats, x.numel() - done)) * sizeof(float);
      if (rank_ == 0) std::memcpy(own_buffer(), all + done, bytes);
      exchange();
      if (rank_ != 0) std::memcpy(all + done, buffer(0), bytes);
    }
  }

  // Who waits looks at their fate.
  void abort() override {}

 private:
  float* own_buffer() const { return ranks_[rank_].buffers[(turn_ + 1) & 1]; }
  const float* buffer(int rank) const { return ranks_[rank].buffers[turn_ & 1]; }

  // What was written to own_buffer() is in buffer() of this rank, and the others' are there too.
  void exchange() {
    ++turn_;
    ranks_[rank_].filled.raise();
    const auto begin = std::chrono::steady_clock::now();
    for (int r = 0; r < size_; ++r) ranks_[r].filled.wait_for(turn_, &fate_);
    const std::chrono::nanoseconds waited = std::chrono::steady_clock::now() - begin;
    ranks_[rank_].waited.fetch_add(waited.count(), std::memory_order_relaxed);
  }

  static void add(float* __restrict sum, const float* __restrict x, std::int64_t count) {
    for (std::int64_t i = 0; i < count; ++i) sum[i] += x[i];
  }

  // Rows of `count` floats; what the last rank's part lacks is left as it was.
  void write(TensorView part, std::int64_t row, std::int64_t end, std::int64_t column,
             std::int64_t count) const {
    const std::int64_t there = std::clamp<std::int64_t>(part.extent(1) - column, 0, count);
    for (std::int64_t i = row; i < end; ++i)
      std::memcpy(own_buffer() + (i - row) * count,
                  static_cast<const float*>(part.data()) + i * part.stride(0) + column,
                  static_cast<std::size_t>(there) * sizeof(float));
  }

  void read(TensorView out, int rank, std::int64_t width, std::int64_t row, std::int64_t end,
            std::int64_t column, std::int64_t count) const {
    const std::int64_t to = rank * width + column;
    const std::int64_t there = std::clamp<std::int64_t>(out.extent(1) - to, 0, count);
    for (std::int64_t i = row; i < end && there > 0; ++i)
      std::memcpy(static_cast<float*>(out.data()) + i * out.stride(0) + to,
                  buffer(rank) + (i - row) * count,
                  static_cast<std::size_t>(there) * sizeof(float));
  }

  Rank* const ranks_;
  SharedFate& fate_;
  const int rank_, size_;
  std::uint32_t turn_;
};

}  // namespace

std::size_t shared_collectives_bytes(int size) { return sizeof(Rank) * static_cast<std::size_t>(size); }

double seconds_waited(const std::byte* memory, int rank) {
  const auto waited = reinterpret_cast<const Rank*>(memory)[rank].waited.load();
  return std::chrono::duration<double>(std::chrono::nanoseconds(waited)).count();
}

std::unique_ptr<Collectives> make_shared_collectives(std::byte* memory, SharedFate& fate, int rank,
                                                     int size) {
  return std::make_unique<SharedCollectives>(memory, fate, rank, size);
}

}  // namespace quire
