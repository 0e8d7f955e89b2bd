#pragma once
// As long as it is there this process gets so many descriptors and no more.

#include <fcntl.h>
#include <sys/resource.h>
#include <unistd.h>

#include <catch2/catch.hpp>
#include <vector>

namespace quire::test {

class ScarceDescriptors {
 public:
  explicit ScarceDescriptors(int num_free) {
    REQUIRE(::getrlimit(RLIMIT_NOFILE, &before_) == 0);
    std::vector<int> next(1, 0);  // the lowest that are free
    for (int i = 0; i < num_free; ++i) next.push_back(::fcntl(0, F_DUPFD_CLOEXEC, 0));
    rlimit scarce = before_;
    scarce.rlim_cur = num_free == 0 ? 0 : static_cast<rlim_t>(next.back() + 1);
    for (int i = 1; i <= num_free; ++i) ::close(next[static_cast<std::size_t>(i)]);
    REQUIRE(::setrlimit(RLIMIT_NOFILE, &scarce) == 0);
  }
  ~ScarceDescriptors() { ::setrlimit(RLIMIT_NOFILE, &before_); }
  ScarceDescriptors(const ScarceDescriptors&) = delete;
  ScarceDescriptors& operator=(const ScarceDescriptors&) = delete;

 private:
  rlimit before_{};
};

}  // namespace quire::test
