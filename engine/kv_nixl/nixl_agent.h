#pragma once
// A NIXL agent with UCX, which is what vLLM's connector uses: memory that others may read and
// write, reads and writes of theirs, and short messages. For one thread; the library runs one of
// its own, which sleeps while nothing comes. The library outlives its agents. Throws Failure where
// the library refuses.

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "engine/kv_nixl/agent_blob.h"
#include "engine/kv_nixl/nixl_library.h"

namespace quire {

// Bytes of ours and of the other side, of the same size.
struct NixlCopy {
  void* local = nullptr;
  std::uint64_t remote = 0;
  std::size_t bytes = 0;
};

class NixlAgent;

// One read or write that was begun. Its memory must stay until it is done or failed.
class NixlTransfer {
 public:
  enum class State : std::uint8_t { running, done, failed };

  ~NixlTransfer();
  NixlTransfer(NixlTransfer&& other) noexcept
      : agent_(other.agent_),
        request_(std::exchange(other.request_, nullptr)),
        state_(other.state_) {}
  NixlTransfer(const NixlTransfer&) = delete;
  NixlTransfer& operator=(const NixlTransfer&) = delete;

  State poll();

 private:
  friend class NixlAgent;
  NixlTransfer(NixlAgent& agent, NixlLibrary::Handle request) : agent_(&agent), request_(request) {}

  NixlAgent* agent_;
  NixlLibrary::Handle request_;
  State state_ = State::running;
};

class NixlAgent {
 public:
  // Names must differ between all agents that meet.
  NixlAgent(const NixlLibrary& library, std::string name);
  ~NixlAgent();
  NixlAgent(const NixlAgent&) = delete;
  NixlAgent& operator=(const NixlAgent&) = delete;

  // Registers memory of the host, until the agent ends.
  void register_memory(std::span<std::byte> memory);
  std::string metadata() const;  // for others

  // What parse_agent_blob() has accepted. Returns the name that the library knows it by.
  std::string add_remote(std::string_view blob);
  void forget_remote(const std::string& name);

  // The other side is sent `notice` once all of it was read, or written; empty: none.
  NixlTransfer read(const std::string& remote, NixlMemory memory, std::uint64_t device,
                    std::span<const NixlCopy> copies, std::string_view notice) {
    return begin(kRead, remote, {memory, device}, copies, notice);
  }
  NixlTransfer write(const std::string& remote, NixlMemory memory, std::uint64_t device,
                     std::span<const NixlCopy> copies, std::string_view notice) {
    return begin(kWrite, remote, {memory, device}, copies, notice);
  }
  void notify(const std::string& remote, std::string_view message);
  // What others said since the last call, and who.
  std::vector<std::pair<std::string, std::string>> take_notices();

 private:
  friend class NixlTransfer;
  class Arguments;
  class TransferList;
  static constexpr int kRead = 0, kWrite = 1;
  struct Place {
    NixlMemory memory;
    std::uint64_t device;
  };
  NixlTransfer begin(int operation, const std::string& remote, Place place,
                     std::span<const NixlCopy> copies, std::string_view notice);

  const NixlLibrary& library_;
  NixlLibrary::Handle agent_ = nullptr, backend_ = nullptr;
  std::vector<std::span<std::byte>> registered_;
};

}  // namespace quire
