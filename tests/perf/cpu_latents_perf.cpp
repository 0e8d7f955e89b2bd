// Latent attention of prompts on the CPU, absorbed and expanded, in turn: from rotated queries to
// values, of a layer of DeepSeek-V2-Lite's shape or with more heads. By count says how many times
// fewer multiplications the second form takes.

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <random>
#include <vector>

#include "cpu/cpu_backend.h"
#include "tests/perf/cpu_limits.h"

namespace quire {
namespace {

constexpr LatentShape kShape{.heads = 16, .latent = 512, .rope = 64, .nope = 128, .value = 128};
constexpr std::int64_t kBlock = 16;

class Bench {
 public:
  explicit Bench(const CpuOptions& options)
      : device_(make_cpu_device()), ops_(make_cpu_ops(options)), limits_(options) {}

  const perf::CpuLimits& limits() const { return limits_; }

  void run(LatentShape shape, std::int64_t num_cached, std::int64_t num_new) {
    const std::int64_t length = num_cached + num_new, columns = (length + kBlock - 1) / kBlock;
    const std::int64_t row = shape.latent + shape.rope, dim = shape.nope + shape.rope;
    const TensorView q = tensor({num_new, shape.heads, dim});
    const TensorView values = tensor({num_new, shape.heads, shape.value});
    const TensorView up = tensor({shape.heads, shape.nope + shape.value, shape.latent});
    const TensorView key_up = tensor({shape.heads, shape.latent, shape.nope});
    const TensorView absorbed = tensor({num_new, shape.heads, row});
    const TensorView attended = tensor({num_new, shape.heads, shape.latent});
    std::vector<std::int32_t> blocks(static_cast<std::size_t>(columns));
    for (std::size_t i = 0; i < blocks.size(); ++i) blocks[i] = static_cast<std::int32_t>(i);
    std::shuffle(blocks.begin(), blocks.end(), std::mt19937(1));
    MlaArgs args;
    args.out = attended;
    args.q = absorbed;
    args.cache = tensor({columns, kBlock, row});
    args.block_table = ints(blocks).reshape({1, columns});
    args.query_start = ints({0, static_cast<std::int32_t>(num_new)});
    args.seq_lens = ints({static_cast<std::int32_t>(length)});
    args.scale = .07f;
    args.max_query_len = static_cast<int>(num_new);
    args.max_seq_len = static_cast<int>(length);
    const std::vector<LatentPrompt> prompts = {
        {0, 0, static_cast<std::int32_t>(num_new), static_cast<std::int32_t>(num_cached)}};
    const auto bytes = static_cast<std::int64_t>(
        ops_->traits().latent_prompt_bytes(static_cast<int>(num_new), shape));
    const MlaPromptArgs expanded{.out = values,
                                 .q = q,
                                 .up = up,
                                 .cache = args.cache,
                                 .block_table = args.block_table,
                                 .query_start = args.query_start,
                                 .seq_lens = args.seq_lens,
                                 .prompts = prompts,
                                 .workspace = tensor({bytes / 2}),
                                 .scale = args.scale};
    const StreamRef stream = device_->stream();
    const double before = best([&] {
      ops_->head_linear(absorbed.narrow(2, 0, shape.latent), q.narrow(2, 0, shape.nope), key_up,
                        stream);
      ops_->copy(absorbed.narrow(2, shape.latent, row), q.narrow(2, shape.nope, dim), stream);
      ops_->mla_attention(args, stream);
      ops_->head_linear(values, attended, up.narrow(1, shape.nope, shape.nope + shape.value),
                        stream);
    });
    const double now = best([&] { ops_->mla_prompt_attention(expanded, stream); });
    print(shape, num_cached, num_new, before, now);
    buffers_.clear();
  }

 private:
  template <class F>
  double best(F&& body) const {
    return perf::best_seconds(limits_.threads(), body);
  }

  static void print(const LatentShape& s, std::int64_t num_cached, std::int64_t num_new,
                    double before, double now) {
    const auto c = static_cast<double>(num_cached), n = static_cast<double>(num_new);
    const double pairs = n * c + n * (n + 1) / 2;
    const auto pair = static_cast<double>(2 * s.latent + s.rope),
               other_pair = static_cast<double>(s.nope + s.rope + s.value),
               expansion = static_cast<double>(s.latent * (s.nope + s.value));
    const double absorbed = pairs * pair + n * expansion;
    const double expanded = pairs * other_pair + (n + c) * expansion;
    const auto rate = [&](double products, double seconds) {
      return 2e-9 * products * static_cast<double>(s.heads) / seconds;
    };
    std::printf(
        "%3ld heads, %4ld behind %5ld   absorbed %8.2f ms %6.1f GFLOP/s   expanded %8.2f ms %6.1f "
        "GFLOP/s   %5.2f times, by count %5.2f%s\n",
        static_cast<long>(s.heads), static_cast<long>(num_new), static_cast<long>(num_cached),
        before * 1e3, rate(absorbed, before), now * 1e3, rate(expanded, now), before / now,
        absorbed / expanded,
        takes_less_expanded(s, num_new, num_cached) ? "" : "   (stays absorbed)");
    std::fflush(stdout);
  }

  TensorView tensor(std::initializer_list<std::int64_t> extents) {
    const TensorView v(nullptr, DType::bf16, extents);
    Buffer& buffer = buffers_.emplace_back(device_->allocate(v.bytes()));
    std::uint32_t state = 12345;
    auto* const p = static_cast<bf16*>(buffer.data());
    for (std::size_t i = 0; i < buffer.bytes() / 2; ++i) {
      state = state * 1664525u + 1013904223u;
      p[i] = bf16((static_cast<float>(state >> 8) / 16777216.f - 0.5f) * 0.25f);
    }
    return {buffer.data(), DType::bf16, extents};
  }
  TensorView ints(const std::vector<std::int32_t>& values) {
    Buffer& buffer = buffers_.emplace_back(device_->allocate(values.size() * 4));
    std::memcpy(buffer.data(), values.data(), values.size() * 4);
    return {buffer.data(), DType::i32, {static_cast<std::int64_t>(values.size())}};
  }

  std::unique_ptr<Device> device_;
  std::unique_ptr<Ops> ops_;
  perf::CpuLimits limits_;
  std::vector<Buffer> buffers_;
};

}  // namespace
}  // namespace quire

// cpu_latents_perf [threads [instruction set by number [heads]]]
int main(int argc, char** argv) {
  quire::CpuOptions options;
  if (argc > 1) options.threads = std::atoi(argv[1]);
  if (argc > 2) options.best_isa = static_cast<quire::CpuIsa>(std::atoi(argv[2]));
  quire::LatentShape shape = quire::kShape;
  if (argc > 3) shape.heads = std::atoi(argv[3]);
  quire::Bench bench(options);
  bench.limits().print();
  for (const auto& [cached, fresh] : std::vector<std::pair<std::int64_t, std::int64_t>>{{0, 64},
                                                                                        {0, 512},
                                                                                        {0, 2048},
                                                                                        {512, 512},
                                                                                        {3584, 512},
                                                                                        {7680, 512},
                                                                                        {4096, 171},
                                                                                        {4096, 64},
                                                                                        {4096, 32}})
    bench.run(shape, cached, fresh);
  bench.limits().print_again();
}
