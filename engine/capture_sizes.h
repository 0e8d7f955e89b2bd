#pragma once
// For which sizes of steps graphs are captured where nobody names them.

#include <vector>

namespace quire {

// Requests of decode steps: 1, 2, 4, then in steps of 8, from 256 on in steps of 16; the last is
// `most`.
std::vector<int> capture_sizes_up_to(int most);

// Tokens of steps with prompts, where a token more costs little beside the weights, which are read
// once: 2, 4, 8, 16, then in steps of 16, from 64 on of 32; the last is `most`.
std::vector<int> mixed_capture_sizes_up_to(int most);
// Larger steps take a device longer than a host needs to queue them.
inline constexpr int kMostMixed = 256;

}  // namespace quire
