#pragma once
// NIXL's own library, but for one call or notice of a plan's, to which it does what a line, a peer
// or the library may do. One at a time in a process.

#include <cstdint>

#include "engine/kv_nixl/nixl_library.h"

namespace quire::test {

enum class NixlFault : std::uint8_t {
  none,
  // Of a notice.
  drop,
  duplicate,
  delay,
  corrupt,  // a bit, anywhere
  fail,     // the call
  // Of the notice that comes with the last bytes of a write.
  drop_done,
  corrupt_done,
  // Of a write.
  fail_write,       // before a byte of it
  fail_after,       // with all of its bytes there
  corrupt_written,  // a bit of what is written
  slow_write,
  fail_reading_notices,  // for some calls
};
inline constexpr int kNumNixlFaults = 13;

struct NixlFaultPlan {
  NixlFault fault = NixlFault::none;
  int call = 0;  // of those that the fault is of
  bool always = false;
  std::uint64_t seed = 0;
};

// By the seed.
NixlFaultPlan any_nixl_fault(std::uint64_t seed);

class FaultyNixl {
 public:
  FaultyNixl();  // opens the library of QUIRE_NIXL_LIBRARY
  ~FaultyNixl();
  FaultyNixl(const FaultyNixl&) = delete;
  FaultyNixl& operator=(const FaultyNixl&) = delete;

  const NixlLibrary& library() const { return library_; }
  // From now on; what another held back is let go.
  void use(NixlFaultPlan plan);
  bool has_struck() const;

 private:
  NixlLibrary library_;
};

}  // namespace quire::test
