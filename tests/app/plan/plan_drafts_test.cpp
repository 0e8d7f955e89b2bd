// Plans of models with drafts.

#include <unistd.h>

#include <catch2/catch.hpp>
#include <filesystem>

#include "app/models/pull_main.h"
#include "tests/app/plan/plan_case.h"

namespace quire {
namespace {

namespace fs = std::filesystem;

TEST_CASE("A plan counts the draft model and says who guesses") {
  EngineConfig config = config_for("models/quire-tiny");
  const PlanReport alone = make_plan_report(config, 0);
  CHECK(plan_text(alone).find("drafts ") == std::string::npos);
  config.speculative.method = DraftMethod::eagle3;
  config.speculative.model = "models/drafts/quire-tiny-eagle3";
  config.speculative.num_speculative_tokens = 3;
  const PlanReport drafting = make_plan_report(config, 0);
  REQUIRE(drafting.plan.model.has_value());
  CHECK(plan_text(drafting).find(
            "3 a step, by EAGLE-3 in models/drafts/quire-tiny-eagle3, 1 of the layers above") !=
        std::string::npos);
  const auto weights = [](const PlanReport& report) {
    return static_cast<std::int64_t>(report.plan.uses[MemoryPurpose::weights].device) +
           report.plan.mapped_bytes;
  };
  CHECK(weights(drafting) > weights(alone) + (1 << 20));
  CHECK(bytes_per_token(drafting.plan.model->kv) > bytes_per_token(alone.plan.model->kv));
}

TEST_CASE("Sizes of drafts are known from configs alone") {
  const fs::path folder = fs::temp_directory_path() / ("quire-sizes-" + std::to_string(getpid()));
  const auto without_weights = [&](const std::string& model) {
    fs::create_directories(folder / fs::path(model).filename());
    fs::copy_file(fs::path(model) / "config.json",
                  folder / fs::path(model).filename() / "config.json");
    return (folder / fs::path(model).filename()).string();
  };
  // Without weights all are copied, where the shipped ones are partly mapped.
  const auto weights = [](const EngineConfig& config) {
    const PlanReport report = make_plan_report(config, 0);
    REQUIRE(report.plan.model.has_value());
    return static_cast<std::int64_t>(report.plan.uses[MemoryPurpose::weights].device) +
           report.plan.mapped_bytes;
  };
  EngineConfig config = config_for("models/quire-tiny");
  config.speculative = {.method = DraftMethod::eagle3,
                        .num_speculative_tokens = 3,
                        .model = "models/drafts/quire-tiny-eagle3"};
  const std::int64_t shipped = weights(config);
  config.model.path = without_weights(config.model.path);
  config.speculative.model = without_weights(config.speculative.model);
  CHECK(weights(config) == Approx(static_cast<double>(shipped)).epsilon(0.05));
  config.speculative.model.clear();
  config.speculative.method = DraftMethod::mtp;
  config.model.path = without_weights("models/quire-tiny-hybrid");
  CHECK(weights(config) == Approx(11.3 * (1 << 20)).epsilon(0.1));
  fs::remove_all(folder);
}

TEST_CASE("A draft's own number of tokens is taken where none is given") {
  const std::string pair = "tests/data/golden/drafts/eagle3-qwen3-speculators/";
  EngineConfig config;
  config.model.path = pair + "target";
  config.speculative = {.method = DraftMethod::eagle3, .model = pair + "draft"};
  find_draft_model(config, false);
  CHECK(config.speculative.num_speculative_tokens == 4);
  config.speculative = {.method = DraftMethod::eagle3, .model = "models/drafts/quire-tiny-eagle3"};
  CHECK_THROWS_WITH(find_draft_model(config, false), Catch::Contains("num_speculative_tokens"));
  const std::string drafts =
      R"(--speculative-config={"method": "eagle3", "model": ")" + pair + R"(draft"})";
  CHECK(plan({config.model.path.c_str(), drafts.c_str()}) == 0);
}

}  // namespace
}  // namespace quire
