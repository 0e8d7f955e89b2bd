#include "app/kv_transfer_flags.h"

#include <string>
#include <utility>
#include <vector>

#include "app/kv_transfer_json.h"
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
         },
         "Memory of the host for what waits to be fetched, and as much for what arrives, where a prompt "
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

void add_mooncake(CLI::App& app, MooncakeConfig& mooncake) {
  app.add_option("--kv-peer-block-size", mooncake.peer_block_size,
                 "--block-size of the servers that prefill for this one over --kv-plane mooncake "
                 "(16)")
      ->check([](const std::string& text) {  // which would be the default
        return std::string(text == "0" ? "must be 1 at least" : "");
      })
      ->type_name("N");
}

}  // namespace

void add_kv_transfer_flags(CLI::App& app, KvTransferConfig& transfer, KvOffloadConfig& offload) {
  CLI::Option* const whole =
      app.add_option_function<std::string>(
             "--kv-transfer-config",
             [&transfer, &offload](const std::string& text) {
               const auto asked =
                   value_or_throw("--kv-transfer-config", parse_kv_transfer_config(text));
               transfer = asked.transfer;
               if (asked.offload.is_on()) offload = asked.offload;
             },
             "The flags below as vLLM's JSON object, or --kv-offload-bytes as its "
             "OffloadingConnector")
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
  add_mooncake(app, transfer.mooncake);
  for (const char* flag : {"--kv-role", "--kv-plane", "--kv-load-failure-policy", "--kv-listen",
                           "--kv-peer", "--kv-transfer-buffer-bytes", "--kv-lease-seconds",
                           "--nixl-library", "--kv-transfer-profile", "--kv-peer-model",
                           "--kv-peer-attention", "--kv-compare-hash", "--kv-peer-block-size"})
    app.get_option(flag)->excludes(whole);
}

}  // namespace quire
