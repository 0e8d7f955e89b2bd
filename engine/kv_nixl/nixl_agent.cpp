#include "engine/kv_nixl/nixl_agent.h"

#include <fmt/format.h>

#include <array>

#include "base/error.h"

namespace quire {
namespace {

using Handle = NixlLibrary::Handle;
constexpr int kInProgress = 1;
constexpr int kStrictSync = 2;                      // two threads may call: ours and the library's
constexpr std::uint64_t kProgressDelayUs = 10'000;  // it wakes earlier when something comes
constexpr int kDram = static_cast<int>(NixlMemory::dram);

void check(int status, const char* what) {
  if (status >= 0) return;
  throw Failure(ErrorCode::unavailable, fmt::format("NIXL: {} failed with {}", what, status));
}

// Destroys what the library made, at the end of a scope.
struct Owned {
  Handle handle = nullptr;
  int (*destroy)(Handle) = nullptr;
  explicit Owned(int (*d)(Handle)) : destroy(d) {}
  ~Owned() {
    if (handle != nullptr) destroy(handle);
  }
  Owned(const Owned&) = delete;
  Owned& operator=(const Owned&) = delete;
};

}  // namespace

class NixlAgent::Arguments : public Owned {
 public:
  explicit Arguments(const NixlAgent& agent) : Owned(agent.library_.destroy_opt_args) {
    check(agent.library_.create_opt_args(&handle), "options");
    check(agent.library_.opt_args_add_backend(handle, agent.backend_), "options");
  }
};

class NixlAgent::TransferList : public Owned {
 public:
  TransferList(const NixlLibrary& library, NixlMemory memory)
      : Owned(library.destroy_xfer_dlist), library_(library) {
    check(library.create_xfer_dlist(static_cast<int>(memory), &handle), "a list");
  }
  void add(std::uintptr_t address, std::size_t bytes, std::uint64_t device) {
    check(library_.xfer_dlist_add_desc(handle, address, bytes, device), "a list");
  }

 private:
  const NixlLibrary& library_;
};

NixlAgent::NixlAgent(const NixlLibrary& library, std::string name) : library_(library) {
  const NixlAgentConfig config{.progress_thread = true,
                               .listen_thread = false,
                               .listen_port = 0,
                               .thread_sync = kStrictSync,
                               .num_workers = 1,
                               .progress_delay_us = kProgressDelayUs,
                               .listen_delay_us = kProgressDelayUs,
                               .telemetry = false};
  check(library.create_configured_agent(name.c_str(), &config, &agent_), "an agent");
  try {
    Owned memories(library.destroy_mem_list), params(library.destroy_params);
    check(library.get_plugin_params(agent_, "UCX", &memories.handle, &params.handle),
          "finding its UCX plugin");
    check(library.create_backend(agent_, "UCX", params.handle, &backend_), "starting UCX");
  } catch (...) {
    library.destroy_agent(agent_);
    throw;
  }
}

NixlAgent::~NixlAgent() {
  for (const std::span<std::byte> memory : registered_) {
    Owned list(library_.destroy_reg_dlist);
    if (library_.create_reg_dlist(kDram, &list.handle) < 0) continue;
    library_.reg_dlist_add_desc(list.handle, reinterpret_cast<std::uintptr_t>(memory.data()),
                                memory.size(), 0, nullptr, 0);
    library_.deregister_mem(agent_, list.handle, nullptr);
  }
  library_.destroy_agent(agent_);
  library_.destroy_backend(backend_);
}

void NixlAgent::register_memory(std::span<std::byte> memory) {
  Owned list(library_.destroy_reg_dlist);
  check(library_.create_reg_dlist(kDram, &list.handle), "a list");
  check(library_.reg_dlist_add_desc(list.handle, reinterpret_cast<std::uintptr_t>(memory.data()),
                                    memory.size(), 0, nullptr, 0),
        "a list");
  const Arguments arguments(*this);
  check(library_.register_mem(agent_, list.handle, arguments.handle), "registering memory");
  registered_.push_back(memory);
}

std::string NixlAgent::metadata() const {
  void* data = nullptr;
  std::size_t bytes = 0;
  check(library_.get_local_md(agent_, &data, &bytes), "reading its own metadata");
  std::string blob(static_cast<const char*>(data), bytes);
  library_.free_memory(data);
  return blob;
}

std::string NixlAgent::add_remote(std::string_view blob) {
  char* name = nullptr;
  check(library_.load_remote_md(agent_, blob.data(), blob.size(), &name),
        "taking a peer's metadata");
  std::string known = name;
  library_.free_memory(name);
  return known;
}

void NixlAgent::forget_remote(const std::string& name) {
  library_.invalidate_remote_md(agent_, name.c_str());
}

NixlTransfer NixlAgent::begin(int operation, const std::string& remote, Place place,
                              std::span<const NixlCopy> copies, std::string_view notice) {
  TransferList ours(library_, NixlMemory::dram), theirs(library_, place.memory);
  for (const NixlCopy& copy : copies) {
    ours.add(reinterpret_cast<std::uintptr_t>(copy.local), copy.bytes, 0);
    theirs.add(copy.remote, copy.bytes, place.device);
  }
  const Arguments arguments(*this);
  if (!notice.empty()) {
    check(library_.opt_args_set_notif_msg(arguments.handle, notice.data(), notice.size()),
          "a notice");
    check(library_.opt_args_set_has_notif(arguments.handle, true), "a notice");
  }
  Handle request = nullptr;
  check(library_.create_xfer_req(agent_, operation, ours.handle, theirs.handle, remote.c_str(),
                                 &request, arguments.handle),
        "preparing a transfer");
  NixlTransfer transfer(*this, request);
  const int status = library_.post_xfer_req(agent_, request, nullptr);
  if (status != kInProgress)
    transfer.state_ = status == 0 ? NixlTransfer::State::done : NixlTransfer::State::failed;
  return transfer;
}

NixlTransfer::State NixlTransfer::poll() {
  if (state_ != State::running) return state_;
  const int status = agent_->library_.get_xfer_status(agent_->agent_, request_);
  if (status != kInProgress) state_ = status == 0 ? State::done : State::failed;
  return state_;
}

NixlTransfer::~NixlTransfer() {
  if (request_ == nullptr) return;
  agent_->library_.release_xfer_req(agent_->agent_, request_);
  agent_->library_.destroy_xfer_req(request_);
}

void NixlAgent::notify(const std::string& remote, std::string_view message) {
  const Arguments arguments(*this);
  check(
      library_.gen_notif(agent_, remote.c_str(), message.data(), message.size(), arguments.handle),
      "a notice");
}

std::vector<std::pair<std::string, std::string>> NixlAgent::take_notices() {
  std::vector<std::pair<std::string, std::string>> taken;
  Owned map(library_.destroy_notif_map);
  check(library_.create_notif_map(&map.handle), "reading notices");
  const Arguments arguments(*this);
  check(library_.get_notifs(agent_, map.handle, arguments.handle), "reading notices");
  std::size_t agents = 0;
  check(library_.notif_map_size(map.handle, &agents), "reading notices");
  for (std::size_t i = 0; i < agents; ++i) {
    const char* name = nullptr;
    std::size_t count = 0;
    check(library_.notif_map_get_agent_at(map.handle, i, &name), "reading notices");
    const std::string agent = name;  // what it points to may change with the next question
    check(library_.notif_map_get_notifs_size(map.handle, agent.c_str(), &count), "reading notices");
    for (std::size_t j = 0; j < count; ++j) {
      const void* data = nullptr;
      std::size_t bytes = 0;
      check(library_.notif_map_get_notif(map.handle, agent.c_str(), j, &data, &bytes),
            "reading notices");
      taken.emplace_back(agent, std::string(static_cast<const char*>(data), bytes));
    }
  }
  return taken;
}

}  // namespace quire
