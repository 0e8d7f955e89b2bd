#pragma once
// The other way of doing the same, for measurements beside each other (tests/perf). Results are
// right either way. Nothing outside the process can say it: no flag, no environment variable.

namespace quire::cuda {

// Set before the launches that it is about; graphs keep what held while they were captured.
struct Variants {
  bool begins_ahead = true;  // kernels begin before those in front of them have ended
  bool warpgroups = true;    // Hopper's products of warpgroups, where those of warps do the same
  bool chunks_ahead = true;  // of recurrent layers, where a block may have the memory for it
  int parts_percent = 100;   // how many parts contexts are cut into, beside what is chosen; 0: one
};
inline Variants variants;

}  // namespace quire::cuda
