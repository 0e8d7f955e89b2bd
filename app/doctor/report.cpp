#include "app/doctor/report.h"

#include <fmt/format.h>

#include <array>

#include "engine/size_text.h"
#include "openapi/json_writer.h"

namespace quire {
namespace {

using openapi::JsonWriter;

struct Format {
  const char* name;
  double bytes;  // of a parameter
  bool in_int8;  // products are made in 8 bits where the machine has VNNI
};
constexpr std::array kFormats{Format{"bf16", 2, false}, Format{"int8", 1.0625, true},
                              Format{"int4", 0.5625, true}};
constexpr std::array kBillions{0.6, 1.7, 4.0, 8.0, 14.0, 32.0};

std::string limit_text(std::int64_t value) {
  return value == kUnlimited ? "unlimited" : std::to_string(value);
}
std::string limit_bytes_text(std::int64_t value) {
  return value == kUnlimited ? "unlimited" : bytes_text(value);
}

std::string gpu_text(const MachineFacts& facts) {
  std::string text;
  for (const GpuFacts& gpu : facts.gpus)
    text += fmt::format("{}{}, {} of {} free", text.empty() ? "" : "; ", gpu.name,
                        bytes_text(gpu.available_bytes), bytes_text(gpu.total_bytes));
  if (text.empty()) text = "none: " + facts.why_not_cuda;
  if (!facts.nvidia_driver.empty()) text += "; driver " + facts.nvidia_driver;
  return text;
}

std::string facts_text(const MachineFacts& facts) {
  const std::string huge =
      facts.transparent_huge_pages.empty() ? "none" : facts.transparent_huge_pages;
  std::string text;
  const auto line = [&text](const char* name, const std::string& value) {
    text += fmt::format("{:<14} {}\n", name, value);
  };
  line("system", facts.kernel);
  line("processor", facts.cpu.empty() ? "unknown" : facts.cpu);
  line("instructions", facts.instructions + (facts.has_vnni ? ", vnni" : ""));
  line("cores",
       fmt::format("{} for an engine; {} of {} processors allowed, {} NUMA node{}, load {:.2f}",
                   facts.engine_cores, facts.allowed_cpus, facts.online_cpus, facts.numa_nodes,
                   facts.numa_nodes > 1 ? "s" : "", facts.load));
  line("memory", fmt::format("{} of {} free", bytes_text(facts.available_bytes),
                             bytes_text(facts.memory_bytes)));
  line("huge pages",
       fmt::format("transparent: {}; reserved: {}", huge, bytes_text(facts.reserved_huge_bytes)));
  line("gpu", gpu_text(facts));
  line("open files", fmt::format("{}, at most {}", limit_text(facts.open_files),
                                 limit_text(facts.open_files_most)));
  line("limits", fmt::format("locked memory {}, address space {}, processes {}",
                             limit_bytes_text(facts.locked_bytes),
                             limit_bytes_text(facts.address_bytes), limit_text(facts.processes)));
  line("model cache",
       fmt::format("{}, {} free{}", facts.cache_folder, bytes_text(facts.cache_free_bytes),
                   facts.cache_writable ? "" : ", not writable"));
  return text;
}

std::string probe_text(const DoctorReport& report) {
  const SpeedProbe& probe = *report.probe;
  const MachineLimits& best = probe.best;
  std::string text = fmt::format(
      "\nprobed for {:.1f} s, {} times, on {} threads\n"
      "  read {:.1f} GB/s, copy {:.1f} GB/s, bf16 {:.0f} GFLOP/s, f32 {:.0f}, int8 {:.0f}; usually "
      "{:.0f} % of it\n",
      probe.seconds, probe.passes, report.facts.engine_cores, best.read_gb, best.copy_gb,
      best.bf16_gflops, best.f32_gflops, best.int8_gops, 100 * probe.usual_share);
  text += fmt::format(
      "\nwhat would run on this CPU; `quire bench MODEL` measures how much of it is reached\n"
      "  {:<22} {:>10}  {:<5} {:>20} {:>18}\n",
      "model", "weights", "fits", "generated tokens/s", "prompt tokens/s");
  for (const ModelEstimate& one : report.estimates) {
    text += fmt::format("  {:<22} {:>10}  {:<5} {:>20} {:>18}\n", one.name,
                        bytes_text(static_cast<std::int64_t>(one.weight_bytes)),
                        one.fits ? "yes" : "no",
                        one.fits ? fmt::format("at most {:.1f}", one.most_generated) : "-",
                        one.fits ? fmt::format("at most {:.0f}", one.most_prompt) : "-");
  }
  return text;
}

std::string advice_text(const std::vector<Advice>& advice) {
  if (advice.empty()) return "\nnothing stands in the way\n";
  std::string text = "\nworth a look\n";
  for (const Advice& one : advice)
    text += fmt::format("  {}: {}.\n      What helps: {}\n", one.about, one.what, one.todo);
  return text;
}

void write_limit(JsonWriter& json, const char* name, std::int64_t value) {
  json.key(name);
  value == kUnlimited ? json.null() : json.integer(value);
}

void write_facts(JsonWriter& json, const MachineFacts& facts) {
  json.key("kernel").string(facts.kernel).key("cpu").string(facts.cpu);
  json.key("instructions").string(facts.instructions).key("vnni").boolean(facts.has_vnni);
  json.key("engine_cores")
      .integer(facts.engine_cores)
      .key("allowed_cpus")
      .integer(facts.allowed_cpus);
  json.key("online_cpus").integer(facts.online_cpus).key("numa_nodes").integer(facts.numa_nodes);
  json.key("load").number(facts.load).key("governor").string(facts.governor);
  json.key("memory_bytes").integer(facts.memory_bytes);
  json.key("available_bytes").integer(facts.available_bytes);
  json.key("machine_bytes").integer(facts.machine_bytes);
  json.key("swap_used_bytes").integer(facts.swap_used_bytes);
  json.key("transparent_huge_pages").string(facts.transparent_huge_pages);
  json.key("reserved_huge_bytes").integer(facts.reserved_huge_bytes);
  json.key("nvidia_driver").string(facts.nvidia_driver);
  json.key("why_not_cuda").string(facts.why_not_cuda).key("gpus").begin_array();
  for (const GpuFacts& gpu : facts.gpus) {
    json.begin_object().key("name").string(gpu.name).key("total_bytes").integer(gpu.total_bytes);
    json.key("available_bytes").integer(gpu.available_bytes).end_object();
  }
  json.end_array();
  write_limit(json, "open_files", facts.open_files);
  write_limit(json, "open_files_most", facts.open_files_most);
  write_limit(json, "locked_bytes", facts.locked_bytes);
  write_limit(json, "address_bytes", facts.address_bytes);
  write_limit(json, "processes", facts.processes);
  json.key("cache_folder").string(facts.cache_folder);
  json.key("cache_free_bytes").integer(facts.cache_free_bytes);
  json.key("cache_writable").boolean(facts.cache_writable);
}

void write_probe(JsonWriter& json, const SpeedProbe& probe) {
  json.begin_object().key("read_gb_s").number(probe.best.read_gb);
  json.key("copy_gb_s").number(probe.best.copy_gb);
  json.key("bf16_gflops").number(probe.best.bf16_gflops);
  json.key("f32_gflops").number(probe.best.f32_gflops);
  json.key("int8_gops").number(probe.best.int8_gops);
  json.key("usual_share").number(probe.usual_share);
  json.key("passes").integer(probe.passes).key("seconds").number(probe.seconds).end_object();
}

}  // namespace

std::vector<ModelEstimate> usual_estimates(const MachineFacts& facts, const SpeedProbe& probe) {
  std::vector<ModelEstimate> list;
  for (const double billions : kBillions) {
    for (const Format& format : kFormats) {
      const double bytes = billions * 1e9 * format.bytes;
      const bool int8 = format.in_int8 && probe.best.int8_gops > 0;
      const double giga = int8 ? probe.best.int8_gops : probe.best.bf16_gflops;
      list.push_back({.name = fmt::format("{}B in {}", billions, format.name),
                      .weight_bytes = bytes,
                      .fits = bytes < 0.8 * static_cast<double>(facts.available_bytes),
                      .most_generated = probe.best.read_gb * 1e9 / bytes,
                      .most_prompt = giga / (2 * billions)});
    }
  }
  return list;
}

std::string doctor_text(const DoctorReport& report) {
  std::string text = facts_text(report.facts);
  if (report.probe) text += probe_text(report);
  if (!report.model_verdict.empty()) text += "\n" + report.model_verdict + "\n";
  return text + advice_text(report.advice);
}

std::string doctor_json(const DoctorReport& report) {
  std::string text;
  JsonWriter json(text);
  json.begin_object().key("machine").begin_object();
  write_facts(json, report.facts);
  json.end_object().key("probe");
  if (report.probe) {
    write_probe(json, *report.probe);
  } else {
    json.null();
  }
  json.key("models").begin_array();
  for (const ModelEstimate& one : report.estimates) {
    json.begin_object().key("name").string(one.name).key("weight_bytes").number(one.weight_bytes);
    json.key("fits").boolean(one.fits);
    json.key("most_generated_tokens_s").number(one.most_generated);
    json.key("most_prompt_tokens_s").number(one.most_prompt).end_object();
  }
  json.end_array().key("model_verdict").string(report.model_verdict);
  json.key("model_fits").boolean(report.model_fits).key("advice").begin_array();
  for (const Advice& one : report.advice) {
    json.begin_object().key("about").string(one.about).key("what").string(one.what);
    json.key("todo").string(one.todo).end_object();
  }
  json.end_array().end_object();
  return text + "\n";
}

}  // namespace quire
