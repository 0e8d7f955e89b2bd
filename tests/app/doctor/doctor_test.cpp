// `quire doctor`: what is read from the kernel's files, what is said about it, and the probe.

#include <simdjson.h>
#include <catch2/catch.hpp>

#include <algorithm>
#include <filesystem>
#include <fstream>

#include "app/doctor/doctor_main.h"
#include "app/doctor/report.h"
#include "app/serve/open_files.h"
#include "tests/support/run_main.h"
#include "tests/support/temp_path.h"

namespace quire {
namespace {

namespace fs = std::filesystem;

// A machine's /proc and /sys in a folder.
struct FakeRoot {
  FakeRoot() { fs::remove_all(path); }
  ~FakeRoot() { fs::remove_all(path); }
  void put(const std::string& name, const std::string& text) const {
    fs::create_directories((path / name).parent_path());
    std::ofstream(path / name) << text;
  }
  fs::path path = temp_path("quire_doctor_test");
};

// Nothing to complain about.
MachineFacts sound() {
  MachineFacts facts;
  facts.instructions = "avx2";
  facts.online_cpus = facts.allowed_cpus = facts.engine_cores = 8;
  facts.memory_bytes = facts.machine_bytes = facts.available_bytes = std::int64_t{64} << 30;
  facts.transparent_huge_pages = "madvise";
  facts.open_files = facts.open_files_most = 65536;
  facts.why_not_cuda = "this binary was built without CUDA";
  facts.cache_folder = "/models";
  facts.cache_free_bytes = std::int64_t{1} << 40;
  facts.cache_writable = true;
  return facts;
}

std::vector<std::string> complaints(const MachineFacts& facts) {
  std::vector<std::string> names;
  for (const Advice& one : advice_for(facts)) {
    CHECK_FALSE(one.what.empty());
    CHECK_FALSE(one.todo.empty());
    names.push_back(one.about);
  }
  return names;
}

using Names = std::vector<std::string>;

TEST_CASE("facts are what the kernel's files say", "[app][doctor]") {
  const FakeRoot root;
  root.put("proc/cpuinfo", "processor\t: 0\nmodel name\t: Fast One 9000\nflags\t\t: avx2\n");
  root.put("proc/meminfo",
           "MemTotal:       1024 kB\nSwapTotal:      2048 kB\nSwapFree:       1024 kB\n"
           "HugePages_Total:       6\nHugePages_Free:        4\nHugepagesize:       2048 kB\n");
  root.put("proc/loadavg", "3.25 1.00 0.50 2/100 4711\n");
  root.put("proc/driver/nvidia/version",
           "NVRM version: NVIDIA UNIX x86_64 Kernel Module  550.54.15  Tue Mar  5\n");
  root.put("sys/kernel/mm/transparent_hugepage/enabled", "always madvise [never]\n");
  root.put("sys/devices/system/cpu/cpu0/cpufreq/scaling_governor", "powersave\n");
  fs::create_directories(root.path / "sys/devices/system/node/node0");
  fs::create_directories(root.path / "sys/devices/system/node/node1");
  const MachineFacts facts = read_machine_facts(root.path);
  CHECK(facts.cpu == "Fast One 9000");
  CHECK(facts.machine_bytes == 1 << 20);
  CHECK(facts.swap_used_bytes == 1 << 20);
  CHECK(facts.reserved_huge_bytes == 12 << 20);
  CHECK(facts.free_huge_bytes == 8 << 20);
  CHECK(facts.load == 3.25);
  CHECK(facts.nvidia_driver == "550.54.15");
  CHECK(facts.transparent_huge_pages == "never");
  CHECK(facts.governor == "powersave");
  CHECK(facts.numa_nodes == 2);
  CHECK(facts.engine_cores >= 1);
  CHECK(facts.available_bytes > 0);
}

TEST_CASE("a machine without such files is described as far as it can be", "[app][doctor]") {
  const MachineFacts facts = read_machine_facts("/nonexistent");
  CHECK(facts.cpu.empty());
  CHECK(facts.numa_nodes == 1);
  CHECK(facts.online_cpus >= 1);
  CHECK_FALSE(
      doctor_text({.facts = facts, .advice = {}, .probe = {}, .estimates = {}, .model_verdict = {}})
          .empty());
}

TEST_CASE("each trouble is named with what helps, and a sound machine has none", "[app][doctor]") {
  REQUIRE(complaints(sound()).empty());
  const auto with = [](auto change) {
    MachineFacts facts = sound();
    change(facts);
    return complaints(facts);
  };
  CHECK(with([](auto& f) { f.instructions = "portable"; }) == Names{"instructions"});
  CHECK(with([](auto& f) { f.allowed_cpus = 2; }) == Names{"affinity"});
  CHECK(with([](auto& f) { f.governor = "powersave"; }) == Names{"governor"});
  CHECK(with([](auto& f) { f.numa_nodes = 2; }) == Names{"numa"});
  CHECK(with([](auto& f) { f.load = 7; }) == Names{"load"});
  CHECK(with([](auto& f) { f.available_bytes = 1 << 30; }) == Names{"memory"});
  CHECK(with([](auto& f) { f.memory_bytes /= 2; }) == Names{"cgroup"});
  CHECK(with([](auto& f) { f.swap_used_bytes = std::int64_t{2} << 30; }) == Names{"swap"});
  CHECK(with([](auto& f) { f.transparent_huge_pages = "never"; }) == Names{"huge_pages"});
  CHECK(with([](auto& f) { f.free_huge_bytes = 1 << 30; }) == Names{"reserved_pages"});
  CHECK(with([](auto& f) { f.nvidia_driver = "550.54.15"; }) == Names{"gpu"});
  CHECK(with([](auto& f) { f.open_files_most = 1024; }) == Names{"open_files"});
  CHECK(with([](auto& f) { f.open_files = 1024; }) == Names{});  // serve raises it
  CHECK(with([](auto& f) { f.address_bytes = std::int64_t{8} << 30; }) == Names{"address_space"});
  CHECK(with([](auto& f) { f.processes = 20; }) == Names{"processes"});
  CHECK(with([](auto& f) { f.cache_writable = false; }) == Names{"cache"});
  CHECK(with([](auto& f) { f.cache_free_bytes = 1 << 30; }) == Names{"cache"});
}

TEST_CASE("estimates follow from the probe", "[app][doctor]") {
  SpeedProbe probe;
  probe.best = {
      .read_gb = 100, .copy_gb = 50, .bf16_gflops = 1000, .f32_gflops = 500, .int8_gops = 4000};
  const auto list = usual_estimates(sound(), probe);
  const auto find = [&list](const std::string& name) {
    const auto found = std::ranges::find(list, name, &ModelEstimate::name);
    REQUIRE(found != list.end());
    return *found;
  };
  CHECK(find("8B in bf16").most_generated == Approx(100 / 16.));
  CHECK(find("8B in bf16").most_prompt == Approx(1000 / 16.));
  CHECK(find("8B in int8").most_prompt == Approx(4000 / 16.));
  CHECK(find("8B in bf16").fits);
  CHECK_FALSE(find("32B in bf16").fits);  // 64 GB, and a fifth is the cache's
  probe.best.int8_gops = 0;
  CHECK(usual_estimates(sound(), probe)[1].most_prompt == Approx(1000 / 1.2));
}

int run_doctor(const std::vector<const char*>& flags, std::string* out = nullptr) {
  const auto outcome = test::run_main(doctor_main, flags, "");
  if (out != nullptr) *out = outcome.out + outcome.err;
  return outcome.exit_code;
}

TEST_CASE("the command probes, judges a model, and prints JSON", "[app][doctor]") {
  std::string out;
  REQUIRE(run_doctor({"models/quire-tiny", "--seconds", "0.1", "--json"}, &out) == 0);
  simdjson::dom::parser parser;
  const simdjson::dom::element report = parser.parse(out);
  CHECK(report["machine"]["engine_cores"].get_int64().value() >= 1);
  CHECK(report["probe"]["read_gb_s"].get_double().value() > 0);
  CHECK(report["probe"]["passes"].get_int64().value() >= 1);
  CHECK(report["models"].at(0)["name"].get_string().value() == "models/quire-tiny");
  CHECK(report["models"].at(0)["most_generated_tokens_s"].get_double().value() > 1);
  CHECK(report["model_fits"].get_bool().value());
  REQUIRE(run_doctor({"--seconds", "0"}, &out) == 0);
  CHECK(out.find("instructions") != out.npos);
  CHECK(out.find("probed") == out.npos);
}

TEST_CASE("a model with a file missing or broken would not be served", "[app][doctor]") {
  const fs::path model = temp_path("quire_doctor_test_model");
  const std::pair<const char*, const char*> faults[] = {
      {"model.safetensors", nullptr},
      {"tokenizer.json", nullptr},
      {"tokenizer.json", "{\"version\": \"1"},
      {"generation_config.json", "{\"temperature\": -5}"},
      {"chat_template.jinja", "{{ foo("},
      {"model.safetensors", "version https://git-lfs.github.com/spec/v1"},
      {"config.json", R"({"architectures":["NoSuchModel"],"vocab_size":8})"}};
  for (const auto& [file, content] : faults) {
    INFO(file);
    fs::remove_all(model);
    fs::copy("models/quire-tiny", model, fs::copy_options::recursive);
    fs::remove(model / file);
    if (content != nullptr) std::ofstream(model / file) << content;
    std::string out;
    CHECK(run_doctor({model.c_str(), "--seconds", "0"}, &out) == 1);
    CHECK(out.find("would be refused") != out.npos);
    CHECK(out.find(content == nullptr ? model.filename().string() : file) != out.npos);
  }
  fs::remove_all(model);
}

TEST_CASE("what its weights or its quantization rule out is a verdict too", "[app][doctor]") {
  const fs::path model = temp_path("quire_doctor_test_weights");
  fs::remove_all(model);
  fs::copy("models/quire-tiny", model, fs::copy_options::recursive);
  std::ifstream in(model / "config.json");
  std::string config(std::istreambuf_iterator<char>(in), {});
  in.close();
  config.insert(config.find('{') + 1, R"("quantization_config":{"quant_method":"bitsandbytes"},)");
  std::ofstream(model / "config.json") << config;
  std::string out;
  CHECK(run_doctor({model.c_str(), "--seconds", "0", "--json"}, &out) == 1);
  CHECK(out.find("\"model_fits\":false") != out.npos);
  CHECK(out.find("bitsandbytes") != out.npos);
  fs::remove_all(model);
}

TEST_CASE("a folder that is no model and a wrong flag have exit codes of their own",
          "[app][doctor]") {
  std::string out;
  CHECK(run_doctor({"/nonexistent/model", "--seconds", "0"}, &out) == 2);
  CHECK(out.find("/nonexistent/model") != out.npos);
  CHECK(run_doctor({"--seconds", "-1"}) > 100);
}

TEST_CASE("connections are as many as files may be open, probes among them", "[app][doctor]") {
  HttpLimits limits;
  REQUIRE(fit_connections(limits, 1 << 20).has_value());
  CHECK(limits.max_connections == 16 * 1024);
  CHECK(limits.probe_connections == 64);
  REQUIRE(fit_connections(limits, 1024).has_value());
  CHECK(limits.max_connections == 1024 - kSpareFiles - 64);
  REQUIRE(fit_connections(limits, 64).has_value());
  CHECK(limits.max_connections == 12);
  CHECK(limits.probe_connections == 4);
  const auto too_few = fit_connections(limits, 50);
  REQUIRE_FALSE(too_few.has_value());
  CHECK(too_few.error().detail ==
        "50 files may be open, too few for a server: ulimit -n 56 at least");
}

}  // namespace
}  // namespace quire
