#pragma once
// config.json of a published draft: EAGLE and EAGLE-3 as they are trained, or in the form of
// "speculators". Bad input throws Failure naming file and field.

#include <filesystem>
#include <string>
#include <string_view>
#include <vector>

#include "model/config.h"

namespace quire {

struct DraftConfig {
  ModelConfig layer;                     // of the draft's layers; vocab_size is the target's
  int draft_vocab_size = 0;              // of its logits
  std::vector<int> stream_layers = {};   // as published; empty: it leaves them to the target
  bool norm_before_residual = false;     // the residual is the normed state
  bool norm_output = false;              // the next step continues from the normed output
  bool norm_each_stream = false;         // before fc: "fc_norm"
  bool norm_streams = false;             // before fc, all together: "norm_before_fc"
  std::vector<std::string> targets = {};  // architectures that it was made for; empty: unknown
  int target_hidden_size = 0;             // of the target that it was made for; 0: unknown
  std::string target_fingerprint = {};    // of its weights; empty: unknown
  std::string form = {};                  // "eagle3", of "speculators"; empty: unknown
  int num_speculative_tokens = 0;         // that it was made for; 0: unknown
};

DraftConfig read_draft_config(const std::filesystem::path& draft_dir);
DraftConfig parse_draft_config(std::string_view json, const std::filesystem::path& file);

}  // namespace quire
