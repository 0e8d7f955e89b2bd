#pragma once
// Working memory that outlives a call and is never shared by two: as many as there were calls at
// once. Safe for any number of threads.

#include <memory>
#include <mutex>
#include <vector>

namespace quire {

template <class T>
class ScratchPool {
 public:
  class Loan {
   public:
    explicit Loan(ScratchPool& pool) : pool_(pool), scratch_(pool.take()) {}
    ~Loan() { pool_.give_back(std::move(scratch_)); }
    Loan(const Loan&) = delete;
    Loan& operator=(const Loan&) = delete;
    T& operator*() { return *scratch_; }

   private:
    ScratchPool& pool_;
    std::unique_ptr<T> scratch_;
  };

 private:
  std::unique_ptr<T> take() {
    const std::lock_guard lock(mutex_);
    if (free_.empty()) return std::make_unique<T>();
    auto scratch = std::move(free_.back());
    free_.pop_back();
    return scratch;
  }
  void give_back(std::unique_ptr<T> scratch) {
    const std::lock_guard lock(mutex_);
    free_.push_back(std::move(scratch));
  }

  std::mutex mutex_;
  std::vector<std::unique_ptr<T>> free_;
};

}  // namespace quire
