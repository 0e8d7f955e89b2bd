#include "engine/kv_nixl/nixl_library.h"

#include <dlfcn.h>
#include <fmt/format.h>

#include <cstdlib>

#include "base/error.h"

namespace quire {
namespace {

constexpr const char* kName = "libnixl_capi.so";
constexpr const char* kHowTo =
    "the Python package nixl-cu12 (1.5.0 or later) has it in .nixl_cu12.mesonpy.libs";

[[noreturn]] void fail(const std::string& what) {
  throw Failure(Error{ErrorCode::unavailable, fmt::format("NixlConfig::library: {}", what),
                      "NixlConfig::library"});
}

}  // namespace

NixlLibrary::NixlLibrary(const std::string& path) {
  handle_ = dlopen(path.empty() ? kName : path.c_str(), RTLD_NOW | RTLD_LOCAL);
  if (handle_ == nullptr) fail(fmt::format("{}; {}", dlerror(), kHowTo));
  try {
    resolve_all();
    if (is_stub()) fail("is a stub that was built without NIXL");
  } catch (...) {
    dlclose(handle_);
    throw;
  }
}

// Threads of the library may still be about to end: it stays loaded.
NixlLibrary::~NixlLibrary() = default;

template <class Function>
void NixlLibrary::resolve(Function*& function, const char* name) {
  void* const found = dlsym(handle_, name);
  if (found == nullptr) fail(fmt::format("has no {}; NIXL 1.5.0 or later is needed", name));
  function = reinterpret_cast<Function*>(found);
}

void NixlLibrary::resolve_all() {
#define QUIRE_NIXL(name) resolve(name, "nixl_capi_" #name)
  QUIRE_NIXL(is_stub);
  QUIRE_NIXL(create_configured_agent);
  QUIRE_NIXL(destroy_agent);
  QUIRE_NIXL(get_plugin_params);
  QUIRE_NIXL(destroy_mem_list);
  QUIRE_NIXL(destroy_params);
  QUIRE_NIXL(create_backend);
  QUIRE_NIXL(destroy_backend);
  QUIRE_NIXL(create_opt_args);
  QUIRE_NIXL(destroy_opt_args);
  QUIRE_NIXL(opt_args_add_backend);
  QUIRE_NIXL(opt_args_set_notif_msg);
  QUIRE_NIXL(opt_args_set_has_notif);
  QUIRE_NIXL(create_reg_dlist);
  QUIRE_NIXL(destroy_reg_dlist);
  QUIRE_NIXL(reg_dlist_add_desc);
  QUIRE_NIXL(register_mem);
  QUIRE_NIXL(deregister_mem);
  QUIRE_NIXL(get_local_md);
  QUIRE_NIXL(load_remote_md);
  QUIRE_NIXL(invalidate_remote_md);
  QUIRE_NIXL(create_xfer_dlist);
  QUIRE_NIXL(destroy_xfer_dlist);
  QUIRE_NIXL(xfer_dlist_add_desc);
  QUIRE_NIXL(create_xfer_req);
  QUIRE_NIXL(post_xfer_req);
  QUIRE_NIXL(get_xfer_status);
  QUIRE_NIXL(release_xfer_req);
  QUIRE_NIXL(destroy_xfer_req);
  QUIRE_NIXL(gen_notif);
  QUIRE_NIXL(create_notif_map);
  QUIRE_NIXL(destroy_notif_map);
  QUIRE_NIXL(get_notifs);
  QUIRE_NIXL(notif_map_size);
  QUIRE_NIXL(notif_map_get_agent_at);
  QUIRE_NIXL(notif_map_get_notifs_size);
  QUIRE_NIXL(notif_map_get_notif);
#undef QUIRE_NIXL
  void* const own = dlsym(handle_, "nixl_capi_mem_free");
  free_ = own == nullptr ? &std::free : reinterpret_cast<void (*)(void*)>(own);
}

}  // namespace quire
