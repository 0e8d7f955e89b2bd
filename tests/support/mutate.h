#pragma once
// Damage to the bytes of a seed, for tests that hold parsers to their bounds.

#include <random>
#include <string>

namespace quire::test {

// Overwrites 1 to `most` of the bytes from `begin` on with random ones, if there are any.
inline void overwrite_bytes(std::string& bytes, unsigned most, std::mt19937& random,
                            std::size_t begin = 0) {
  for (unsigned left = 1 + static_cast<unsigned>(random() % most); left > 0; --left)
    if (bytes.size() > begin)
      bytes[begin + random() % (bytes.size() - begin)] = static_cast<char>(random());
}

// Overwrites a byte with a random one, or one time in `one_in` erases less than `most` bytes.
inline void erase_or_overwrite(std::string& bytes, unsigned one_in, unsigned most,
                               std::mt19937& random) {
  if (bytes.empty()) return;
  const std::size_t at = random() % bytes.size();
  if (random() % one_in == 0) {
    bytes.erase(at, random() % most);
  } else {
    bytes[at] = static_cast<char>(random());
  }
}

}  // namespace quire::test
