#include <algorithm>
#include <utility>

#include "model/config_parts.h"

namespace quire {

namespace {

RopeKind kind_of(const Json& fields, const std::string& name) {
  constexpr std::pair<std::string_view, RopeKind> kKinds[] = {
      {"default", RopeKind::standard},
      {"linear", RopeKind::linear},
      {"dynamic", RopeKind::dynamic},
      {"yarn", RopeKind::yarn},
      {"llama3", RopeKind::llama3},
      {"longrope", RopeKind::longrope},
      {"su", RopeKind::longrope},
      {"mrope", RopeKind::standard},  // text: three equal positions
  };
  for (const auto& [spelling, kind] : kKinds) {
    if (name == spelling) return kind;
  }
  fields.fail_at(
      "rope_type",
      "\"" + name + "\" is not supported (default, linear, dynamic, yarn, llama3, longrope)",
      ErrorCode::unsupported);
}

// Even as null.
bool names(const Json& fields, std::string_view name) {
  for (const auto& [member, value] : fields.members()) {
    if (member == name) return true;
  }
  return false;
}

// Two spellings of one thing; vLLM refuses those that contradict each other but for these.
std::string type_of(const Json& fields) {
  const auto newer = fields.text({"rope_type"}), older = fields.text({"type"});
  const bool same = !newer || !older || newer == older ||
                    (newer == "longrope" && older == "su") ||
                    (newer == "default" && older == "mrope");
  if (!same) fields.fail_at("rope_type", "\"" + *newer + "\" contradicts type, \"" + *older + "\"");
  return newer ? *newer : older.value_or("default");
}

// What transformers asks of each kind; it takes a yarn's factor that is null for the stretch.
void need_members(RopeKind kind, const std::string& type, const Json& fields) {
  const auto need = [&](std::string_view name) {
    if (!fields.has({name})) fields.fail_at(name, "is missing; rope_type " + type + " needs it");
  };
  if (kind == RopeKind::linear || kind == RopeKind::dynamic || kind == RopeKind::llama3) {
    need("factor");
  }
  if (kind == RopeKind::dynamic && fields.has({"alpha"}))
    fields.fail_at("alpha", "is not supported (HunYuan's); dynamic ropes have a factor here",
                   ErrorCode::unsupported);
  if (kind == RopeKind::yarn && !names(fields, "factor")) need("factor");
  if (kind == RopeKind::llama3) {
    need("low_freq_factor");
    need("high_freq_factor");
  }
}

void check(const RopeConfig& rope, const Json& fields) {
  if (!(rope.theta > 0)) fields.fail_at("rope_theta", "must be above 0");
  if (!(rope.partial_rotary_factor > 0 && rope.partial_rotary_factor <= 1)) {
    fields.fail_at("partial_rotary_factor", "must be above 0 and at most 1");
  }
  if (!(rope.factor > 0)) fields.fail_at("factor", "must be above 0");
  if (!(rope.high_freq_factor > rope.low_freq_factor)) {
    fields.fail_at("high_freq_factor", "must be above low_freq_factor");
  }
  if (rope.kind == RopeKind::longrope &&
      (rope.short_factor.empty() || rope.short_factor.size() != rope.long_factor.size())) {
    fields.fail_at("long_factor", "longrope needs short_factor and long_factor of one length");
  }
  for (const auto* list : {&rope.short_factor, &rope.long_factor}) {
    for (const double f : *list) {
      if (!(f > 0)) fields.fail_at("long_factor", "factors must be above 0");
    }
  }
}

// The length that a rope was trained for. As in transformers the one beside the ropes counts first
// for the kinds that Phi-3's way was made for, where one rope is for all layers.
std::optional<int> original_length(RopeKind kind, const Json& top, const Json& in, bool for_all) {
  const bool is_outer_first = for_all && (kind == RopeKind::llama3 || kind == RopeKind::yarn ||
                                          kind == RopeKind::longrope);
  const Json::Names name = {"original_max_position_embeddings"};
  const auto first = (is_outer_first ? top : in).integer(name, kTokens);
  return first ? first : (is_outer_first ? in : top).integer(name, kTokens);
}

// `scaling` is rope_parameters or rope_scaling, or that of some layers; `top` has what the older
// form keeps beside it.
RopeConfig parse_one(const ModelConfig& config, const Json& top, const Json* scaling,
                     bool for_all) {
  const Json& in = scaling != nullptr ? *scaling : top;
  const auto number = [&](Json::Names names) {
    const auto inner = in.number(names);
    return inner ? inner : top.number(names);
  };
  RopeConfig rope;
  rope.theta = number({"rope_theta"}).value_or(rope.theta);
  rope.partial_rotary_factor = number({"partial_rotary_factor"}).value_or(1.0);
  const std::string type = scaling == nullptr ? "default" : type_of(in);
  rope.kind = kind_of(in, type);
  const auto original = original_length(rope.kind, top, in, for_all);
  rope.original_max_position_embeddings = original.value_or(config.max_position_embeddings);
  if (scaling == nullptr) return rope;

  need_members(rope.kind, type, in);
  const double stretch = original ? double(config.max_position_embeddings) / *original : 1.0;
  rope.factor = in.number({"factor"}).value_or(stretch);  // Phi-3 publishes none
  rope.attention_factor = in.number({"attention_factor"});
  rope.beta_fast = in.number({"beta_fast"}).value_or(rope.beta_fast);
  rope.beta_slow = in.number({"beta_slow"}).value_or(rope.beta_slow);
  rope.mscale = in.number({"mscale"}).value_or(rope.mscale);
  rope.mscale_all_dim = in.number({"mscale_all_dim"}).value_or(rope.mscale_all_dim);
  rope.truncate = in.boolean({"truncate"}).value_or(rope.truncate);
  rope.llama_4_scaling_beta = in.number({"llama_4_scaling_beta"}).value_or(0.0);
  rope.low_freq_factor = in.number({"low_freq_factor"}).value_or(rope.low_freq_factor);
  rope.high_freq_factor = in.number({"high_freq_factor"}).value_or(rope.high_freq_factor);
  rope.short_factor = in.numbers({"short_factor"}).value_or(std::vector<double>{});
  rope.long_factor = in.numbers({"long_factor"}).value_or(std::vector<double>{});
  check(rope, in);
  return rope;
}

// The field's rule: the original length times the factor, for the kinds whose factor says how far
// they reach; llama3 and longrope publish the stretched length. What a file
// publishes is believed where that is more.
int longest_context(const ModelConfig& config) {
  const RopeConfig& rope = config.rope;
  const int published = config.max_position_embeddings;
  const bool stretches = rope.kind == RopeKind::linear || rope.kind == RopeKind::dynamic ||
                         rope.kind == RopeKind::yarn;
  if (!stretches) return published;
  const double reached = rope.original_max_position_embeddings * rope.factor;
  return std::max(published, static_cast<int>(std::min<double>(reached, kTokens.max)));
}

}  // namespace

void parse_rope(ModelConfig& config, const Json& text) {
  auto scaling = text.object({"rope_scaling"});  // wins, as in transformers
  if (!scaling || scaling->members().empty()) scaling = text.object({"rope_parameters"});
  if (scaling && scaling->members().empty()) scaling.reset();
  const auto full = scaling ? scaling->object({"full_attention"}) : std::nullopt;
  const auto sliding = scaling ? scaling->object({"sliding_attention"}) : std::nullopt;
  const Json* global = full ? &*full : scaling && !sliding ? &*scaling : nullptr;
  config.rope = parse_one(config, text, global, !full && !sliding);
  if (sliding) {
    config.rope_local = parse_one(config, text, &*sliding, false);
  } else if (const auto theta = text.number({"rope_local_base_freq"})) {
    config.rope_local.emplace().theta = *theta;
    check(*config.rope_local, text);
  }
  if (scaling == std::nullopt) check(config.rope, text);
  // Queries of later positions would be scaled, which is not built; up to there by one.
  if (config.rope.llama_4_scaling_beta != 0) {
    config.max_position_embeddings =
        std::min(config.max_position_embeddings, config.rope.original_max_position_embeddings);
    config.longest_context = config.max_position_embeddings;
    return;
  }
  config.longest_context = longest_context(config);
}

}  // namespace quire
