#pragma once
// How many bytes of request bodies the server holds at a time, over all connections. Any thread.

#include <atomic>
#include <cstddef>
#include <utility>

namespace quire {

class ByteBudget {
 public:
  explicit ByteBudget(std::size_t limit) : limit_(limit) {}
  std::size_t limit() const { return limit_; }
  std::size_t taken() const { return taken_; }

  // One request's part; it goes back at the end. The budget outlives it.
  class Share {
   public:
    explicit Share(ByteBudget& budget) : budget_(&budget) {}
    Share(const Share&) = delete;
    Share& operator=(const Share&) = delete;
    ~Share() { release(); }

    // False: the budget has no room for so much; the share stays as it was.
    bool grow_to(std::size_t bytes) {
      if (bytes <= bytes_) return true;
      const std::size_t more = bytes - bytes_;
      if (budget_->taken_.fetch_add(more) + more > budget_->limit_) {
        budget_->taken_ -= more;
        return false;
      }
      bytes_ = bytes;
      return true;
    }
    void release() { budget_->taken_ -= std::exchange(bytes_, 0); }

   private:
    ByteBudget* budget_;
    std::size_t bytes_ = 0;
  };

 private:
  std::size_t limit_;
  std::atomic<std::size_t> taken_{0};
};

}  // namespace quire
