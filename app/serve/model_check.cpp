#include "app/serve/model_check.h"

#include <filesystem>
#include <string>

#include "engine/core/fingerprint.h"
#include "engine/core/served_model.h"
#include "gguf/archive.h"

namespace quire {
namespace {

namespace fs = std::filesystem;

bool has_weights(const EngineConfig& config) {
  if (config.model.load_format == LoadFormat::dummy || gguf::is_gguf(config.model.path))
    return true;
  for (const auto& entry : fs::directory_iterator(config.model.path))
    if (entry.path().extension() == ".safetensors") return true;
  return false;
}

struct OwnModel {
  std::string folder, dtype;
  std::string fingerprint;  // empty: not known here
  int vocab_size;
};

OwnModel read_own_model(const EngineConfig& asked) {
  const ServedModel served = read_served_model(asked);
  const DType dtype = served.config.model.dtype.value_or(served.model.dtype);
  OwnModel own{asked.model.path, std::string(name_of(dtype)), {}, served.model.vocab_size};
  // With dynamic scaling it tells of the longest context too, which the engine's memory decides.
  if (has_weights(served.config) && served.model.rope.kind != RopeKind::dynamic)
    own.fingerprint = model_fingerprint(served.config, served.model, dtype, 0);
  return own;
}

Result<void> differs(const OwnModel& own, const Ready& ready, const char* field,
                     const std::string& there, const std::string& here) {
  return Error{ErrorCode::invalid_argument,
               "engine " + std::to_string(ready.engine.value) +
                   " has another model than this server's folder " + own.folder + ": its " + field +
                   " is " + there + ", the folder's is " + here,
               field};
}

}  // namespace

std::function<Result<void>(const Ready&)> same_model_as(const EngineConfig& config) {
  return [own = read_own_model(config)](const Ready& ready) -> Result<void> {
    if (ready.vocab_size != 0 && ready.vocab_size != own.vocab_size)
      return differs(own, ready, "vocab_size", std::to_string(ready.vocab_size),
                     std::to_string(own.vocab_size));
    if (ready.device == "mock") return {};  // it has no weights
    const bool is_comparable = !own.fingerprint.empty() && !ready.model_fingerprint.empty() &&
                               ready.version == quire_version() && ready.dtype == own.dtype;
    if (is_comparable && ready.model_fingerprint != own.fingerprint)
      return differs(own, ready, "model_fingerprint", ready.model_fingerprint, own.fingerprint);
    return {};
  };
}

}  // namespace quire
