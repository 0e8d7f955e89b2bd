#pragma once
// Lists of (row or slot, token, value) of any length on their way to the device: the memory has a
// limit, so long ones go in pieces. Engine thread only. After construction nothing is allocated.

#include <algorithm>
#include <array>
#include <cstdint>
#include <memory>

#include "backend/staged_pack.h"

namespace quire {

class ListPieces {
 public:
  template <class Value>  // 32 bits
  struct Piece {
    StagedPack::Array<std::int32_t> rows, tokens;
    StagedPack::Array<Value> values;
  };

  ListPieces(Device& device, int max_rows, int vocab_size)
      : size_(std::min(kLargest, static_cast<std::size_t>(max_rows) * vocab_size)),
        pack_(device, MemoryPurpose::sampling, 0, 3 * StagedPack::bytes_of<std::int32_t>(size_)) {
    for (auto& event : uploaded_) event = device.create_event();
  }

  std::size_t most() const { return size_; }  // entries of a piece

  // To be filled; lies where the piece before the last was, once that has been copied.
  template <class Value>
  Piece<Value> begin(std::size_t size) {
    turn_ = 1 - turn_;
    uploaded_[turn_]->wait();
    pack_.begin();
    return {pack_.add<std::int32_t>(size), pack_.add<std::int32_t>(size), pack_.add<Value>(size)};
  }
  // Queued; the operator that reads the piece follows.
  void upload(StreamRef stream) {
    pack_.upload(stream);
    uploaded_[turn_]->record(stream);
  }

 private:
  static constexpr std::size_t kLargest = 1 << 18;  // 3 MiB

  const std::size_t size_;
  StagedPack pack_;
  std::array<std::unique_ptr<Event>, 2> uploaded_;  // by the pack's turn
  int turn_ = 0;
};

}  // namespace quire
