#pragma once
// Scratch memory of one step: a bump allocator over a buffer taken at start-up. Scopes nest like
// blocks of code.

#include <cstddef>
#include <initializer_list>

#include "backend/device.h"
#include "base/error.h"

namespace quire {

class Workspace {
 public:
  explicit Workspace(Buffer buffer) : buffer_(std::move(buffer)) {}

  // Contents undefined. Throws Failure when the budget planned at start-up was too small: a bug,
  // not a condition.
  TensorView take(DType dtype, std::initializer_list<std::int64_t> extents) {
    const std::size_t begin = (used_ + 63) / 64 * 64;
    TensorView view(static_cast<std::byte*>(buffer_.data()) + begin, dtype, extents);
    if (begin + view.bytes() > buffer_.bytes()) {
      throw Failure(ErrorCode::internal,
                    "workspace of " + std::to_string(buffer_.bytes()) + " bytes is too small");
    }
    used_ = begin + view.bytes();
    peak_ = used_ > peak_ ? used_ : peak_;
    return view;
  }
  std::size_t peak() const { return peak_; }  // bytes
  std::size_t capacity() const { return buffer_.bytes(); }

  // Gives back, when it ends, what was taken since it began.
  class Scope {
   public:
    explicit Scope(Workspace& workspace) : workspace_(workspace), used_(workspace.used_) {}
    ~Scope() { workspace_.used_ = used_; }
    Scope(const Scope&) = delete;
    Scope& operator=(const Scope&) = delete;

   private:
    Workspace& workspace_;
    std::size_t used_;
  };

 private:
  Buffer buffer_;
  std::size_t used_ = 0;
  std::size_t peak_ = 0;
};

}  // namespace quire
