#pragma once
// Chunks of a stream as JSON. What is the same in all chunks of a request is written once.

#include <cstdint>
#include <string>
#include <string_view>

#include "openapi/dto.h"

namespace quire {

class ChunkWriter {
 public:
  ChunkWriter(std::string_view id, std::string_view object, std::int64_t created,
              std::string_view model, std::string_view fingerprint);

  // {"id":…,"choices":[ … the caller appends the choices … ],"usage":…}
  void begin(std::string& out) const { out += prefix_; }
  // members: more of the chunk's own, as `,"a":1`.
  void end(std::string& out, const openapi::Usage* usage = nullptr,
           std::string_view members = {}) const;
  // The chunk with the usage alone.
  void usage_chunk(std::string& out, const openapi::Usage& usage) const;

 private:
  std::string prefix_;
};

}  // namespace quire
