#pragma once
// NIXL's C interface, opened at run time: nothing of it is needed to build or to run without it.
// The functions that are used, by their own names without "nixl_capi_"; statuses are 0 for done, 1
// for in progress, negative for an error. Immutable once open.

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>

namespace quire {

struct NixlHandle;  // whatever the library points to

// As the library declares it.
struct NixlAgentConfig {
  bool progress_thread = false, listen_thread = false;
  int listen_port = 0;
  int thread_sync = 0;
  unsigned num_workers = 0;
  std::uint64_t progress_delay_us = 0, listen_delay_us = 0;
  bool telemetry = false;
};

class NixlLibrary {
 public:
  // Empty: as the loader finds it. Throws Failure that says what is missing and how to get it.
  explicit NixlLibrary(const std::string& path);
  ~NixlLibrary();
  NixlLibrary(const NixlLibrary&) = delete;
  NixlLibrary& operator=(const NixlLibrary&) = delete;

  using Handle = NixlHandle*;
  bool (*is_stub)();
  int (*create_configured_agent)(const char* name, const NixlAgentConfig*, Handle* agent);
  int (*destroy_agent)(Handle agent);
  int (*get_plugin_params)(Handle agent, const char* plugin, Handle* memories, Handle* params);
  int (*destroy_mem_list)(Handle memories);
  int (*destroy_params)(Handle params);
  int (*create_backend)(Handle agent, const char* plugin, Handle params, Handle* backend);
  int (*destroy_backend)(Handle backend);
  int (*create_opt_args)(Handle* args);
  int (*destroy_opt_args)(Handle args);
  int (*opt_args_add_backend)(Handle args, Handle backend);
  int (*opt_args_set_notif_msg)(Handle args, const void* data, std::size_t bytes);
  int (*opt_args_set_has_notif)(Handle args, bool has);
  int (*create_reg_dlist)(int memory, Handle* list);
  int (*destroy_reg_dlist)(Handle list);
  int (*reg_dlist_add_desc)(Handle list, std::uintptr_t address, std::size_t bytes,
                            std::uint64_t device, const void* extra, std::size_t extra_bytes);
  int (*register_mem)(Handle agent, Handle list, Handle args);
  int (*deregister_mem)(Handle agent, Handle list, Handle args);
  int (*get_local_md)(Handle agent, void** data, std::size_t* bytes);
  int (*load_remote_md)(Handle agent, const void* data, std::size_t bytes, char** name);
  int (*invalidate_remote_md)(Handle agent, const char* name);
  int (*create_xfer_dlist)(int memory, Handle* list);
  int (*destroy_xfer_dlist)(Handle list);
  int (*xfer_dlist_add_desc)(Handle list, std::uintptr_t address, std::size_t bytes,
                             std::uint64_t device);
  int (*create_xfer_req)(Handle agent, int operation, Handle local, Handle remote,
                         const char* remote_agent, Handle* request, Handle args);
  int (*post_xfer_req)(Handle agent, Handle request, Handle args);
  int (*get_xfer_status)(Handle agent, Handle request);
  int (*release_xfer_req)(Handle agent, Handle request);
  int (*destroy_xfer_req)(Handle request);
  int (*gen_notif)(Handle agent, const char* to, const void* data, std::size_t bytes, Handle args);
  int (*create_notif_map)(Handle* map);
  int (*destroy_notif_map)(Handle map);
  int (*get_notifs)(Handle agent, Handle map, Handle args);
  int (*notif_map_size)(Handle map, std::size_t* size);
  int (*notif_map_get_agent_at)(Handle map, std::size_t index, const char** name);
  int (*notif_map_get_notifs_size)(Handle map, const char* name, std::size_t* size);
  int (*notif_map_get_notif)(Handle map, const char* name, std::size_t index, const void** data,
                             std::size_t* bytes);

  // Of what the library handed out: by its own function where it has one.
  void free_memory(void* memory) const { free_(memory); }

 private:
  void resolve_all();
  template <class Function>
  void resolve(Function*& function, const char* name);

  void* handle_ = nullptr;
  void (*free_)(void*) = nullptr;
};

}  // namespace quire
