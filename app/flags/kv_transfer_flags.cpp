#include "app/flags/kv_transfer_flags.h"

#include <string>
#include <utility>
#include <vector>

#include "app/flags/kv_transfer_json.h"
#include "engine/size_text.h"

namespace quire {
namespace {

template <class Value>
CLI::Option* add_choice(CLI::App& app, const char* flag, Value& value,
                        std::vector<std::pair<std::string, Value>> choices,
                        const char* description) {
  return app
      .add_option_function<std::string>(
          flag,
          [flag, &value, choices = std::move(choices)](const std::string& text) {
            std::string known;
            for (const auto& [name, chosen] : choices) {
              if (name == text) {
                value = chosen;
                return;
              }
              known += (known.empty() ? "" : ", ") + name;
            }
            throw CLI::ValidationError(flag, "\"" + text + "\" is none of " + known);
          },
          description)
      ->type_name("NAME");
}

template <class Parsed>
auto value_or_throw(const char* flag, const Parsed& parsed) {
  if (parsed.has_error()) throw CLI::ValidationError(flag, parsed.error().detail);
  return *parsed;
}

void add_sides(CLI::App& app, KvTransferConfig& transfer) {
  app.add_option_function<std::string>(
         "--kv-listen",
         [&transfer](const std::string& text) {
           transfer.listen = value_or_throw("--kv-listen", parse_kv_listen(text));
         },
         "Where others fetch what this server prefills: 10.0.0.7:5600 or unix:/run/quire-kv.sock")
      ->type_name("ADDRESS");
  app.add_option_function<std::vector<std::string>>(
         "--kv-peer",
         [&transfer](const std::vector<std::string>& texts) {
           for (const std::string& text : texts)
             transfer.peers.push_back({value_or_throw("--kv-peer", parse_kv_peer(text))});
         },
         "Who this server may fetch from, whatever a request says: host:port, host or unix:path; "
         "may be given again")
      ->type_name("ADDRESS")
      ->delimiter(',');
}

void add_sizes(CLI::App& app, KvTransferConfig& transfer) {
  app.add_option_function<std::string>(
         "--kv-transfer-buffer-bytes",
         [&transfer](const std::string& text) {
           transfer.buffer_bytes = value_or_throw("--kv-transfer-buffer-bytes", parse_bytes(text));
           if (transfer.buffer_bytes < 1)
             throw CLI::ValidationError("--kv-transfer-buffer-bytes",
                                        "must be positive, not " + text);
         },
         "Memory of the host for what waits to be fetched, and as much for what arrives, where a "
         "prompt "
         "takes twice its bytes over nixl and mooncake; default: two prompts as long as the "
         "context, at most 1GiB, or 2GiB where it takes twice")
      ->type_name("SIZE");
  app.add_option_function<int>(
         "--kv-lease-seconds", [&transfer](int seconds) { transfer.lease_seconds = seconds; },
         "How long a finished prefill is kept without a sign of life (30; over mooncake 480)")
      ->type_name("N");
}

void add_nixl(CLI::App& app, NixlConfig& nixl) {
  app.add_option("--nixl-library", nixl.library,
                 "libnixl_capi.so for --kv-plane nixl; default: as the loader finds it")
      ->type_name("FILE");
  app.add_option("--kv-transfer-profile", nixl.profile,
                 "The vLLM servers on the other side of --kv-plane nixl, such as vllm-0.33.0 "
                 "(default)")
      ->type_name("NAME");
  app.add_option("--kv-peer-model", nixl.peer_model,
                 "What those servers were given as --model, letter by letter; default: MODEL")
      ->type_name("TEXT");
  app.add_option("--kv-peer-attention", nixl.peer_attention, "Their attention backend (FLASH_ATTN)")
      ->type_name("NAME");
  app.add_option_function<bool>(
         "--kv-compare-hash", [&nixl](bool compares) { nixl.compare_hash = compares; },
         "Whether vLLM's compatibility hash must agree; false is vLLM's "
         "enforce_handshake_compat false")
      ->type_name("BOOL");
}

// The plane's flag is added before it, so that its word is known by now.
void add_transfer_mode(CLI::App& app, KvTransferConfig& transfer) {
  add_choice<bool>(app, "--nixl-transfer-mode", transfer.nixl.pushes,
                   {{"pull", false}, {"push", true}},
                   "pull: whoever decodes reads, as with vLLM's NixlConnector (default); push: "
                   "whoever prefills writes, as with its NixlPushConnector")
      ->check([&transfer](const std::string& text) {  // pull would be the default
        const bool is_idle = text == "pull" && !transfer.uses_nixl();
        return std::string(is_idle ? "has no effect without --kv-plane nixl; remove it" : "");
      });
}

void add_peer_block_size(CLI::App& app, KvTransferConfig& transfer) {
  app.add_option("--kv-peer-block-size", transfer.peer_block_size,
                 "--block-size of the servers that prefill for this one over --kv-plane mooncake, "
                 "or of those on the other side with --nixl-transfer-mode push (16)")
      ->check([](const std::string& text) {  // which would be the default
        return std::string(text == "0" ? "must be 1 at least" : "");
      })
      ->type_name("N");
}

// A flag, and whether vLLM's object says the same.
struct Twin {
  const char* flag;
  bool is_said;
};

std::vector<Twin> twins_of(const KvTransferConfig& said) {
  const KvTransferConfig none;
  return {{"--kv-role", said.role != none.role},
          {"--kv-plane", said.plane != none.plane},
          {"--kv-load-failure-policy", said.load_failure_policy != none.load_failure_policy},
          {"--kv-listen", said.listen != none.listen},
          {"--kv-peer", !said.peers.empty()},
          {"--kv-transfer-buffer-bytes", said.buffer_bytes != none.buffer_bytes},
          {"--kv-lease-seconds", said.lease_seconds != none.lease_seconds},
          {"--nixl-library", said.nixl.library != none.nixl.library},
          {"--kv-transfer-profile", said.nixl.profile != none.nixl.profile},
          {"--kv-peer-model", said.nixl.peer_model != none.nixl.peer_model},
          {"--kv-peer-attention", said.nixl.peer_attention != none.nixl.peer_attention},
          {"--kv-compare-hash", said.nixl.compare_hash != none.nixl.compare_hash},
          {"--kv-peer-block-size", said.peer_block_size != none.peer_block_size},
          {"--nixl-transfer-mode", said.uses_nixl()}};
}

void check_said_once(const CLI::App& app, const KvTransferConfig& said) {
  for (const Twin& twin : twins_of(said))
    if (twin.is_said && app.count(twin.flag) > 0)
      throw CLI::ValidationError(
          "--kv-transfer-config", std::string("says what ") + twin.flag + " says: give one");
}

}  // namespace

void add_kv_transfer_flags(CLI::App& app, KvTransferConfig& transfer, KvOffloadConfig& offload) {
  // The first of them: its callback runs before those of the flags, which say the rest.
  app.add_option_function<std::string>(
         "--kv-transfer-config",
         [&app, &transfer, &offload](const std::string& text) {
           const auto asked =
               value_or_throw("--kv-transfer-config", parse_kv_transfer_config(text));
           check_said_once(app, asked.transfer);
           transfer = asked.transfer;
           if (asked.offload.is_on()) offload = asked.offload;
         },
         "vLLM's JSON object for what the flags below say, which say the rest; or "
         "--kv-offload-bytes as its OffloadingConnector")
      ->type_name("JSON");
  add_choice<KvRole>(
      app, "--kv-role", transfer.role,
      {{"prefill", KvRole::prefill}, {"decode", KvRole::decode}, {"both", KvRole::both}},
      "What this server does of a request that two share: prefill, decode, or both");
  add_choice<std::optional<KvPlane>>(
      app, "--kv-plane", transfer.plane,
      {{"local", KvPlane::local}, {"nixl", KvPlane::nixl}, {"mooncake", KvPlane::mooncake}},
      "How keys and values travel: local (between Quire servers; "
      "default), nixl or mooncake (vLLM servers too, with the "
      "connector of that name)");
  add_choice<std::optional<KvLoadFailurePolicy>>(
      app, "--kv-load-failure-policy", transfer.load_failure_policy,
      {{"recompute", KvLoadFailurePolicy::recompute}, {"fail", KvLoadFailurePolicy::fail}},
      "When nothing could be fetched: recompute the prompt here (default), or fail the request");
  add_sides(app, transfer);
  add_sizes(app, transfer);
  add_nixl(app, transfer.nixl);
  add_transfer_mode(app, transfer);
  add_peer_block_size(app, transfer);
}

}  // namespace quire
