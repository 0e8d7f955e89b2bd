// Tokenizer throughput: tokenizer_perf MODEL_DIR [TEXT_FILE] prints load time, encode MB/s with an
// empty and with a warm word cache, and the streaming detokenizer's ns per token.

#include <fmt/format.h>

#include <ctime>
#include <fstream>
#include <random>
#include <sstream>

#include "base/error.h"
#include "text/tokenizer/detokenizer.h"
#include "text/tokenizer/tokenizer.h"

namespace quire {
namespace {

// CPU time: what else runs on the machine does not count.
double now() {
  timespec time{};
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &time);
  return static_cast<double>(time.tv_sec) + 1e-9 * static_cast<double>(time.tv_nsec);
}

template <class Run>
double best_of(int times, Run&& run) {
  double best = 1e9;
  for (; times > 0; --times) {
    const double start = now();
    run();
    best = std::min(best, now() - start);
  }
  return best;
}

// Without a file: words of a Zipf distribution with punctuation, numbers, code and some CJK.
std::string made_up_text(std::size_t bytes) {
  std::mt19937 random(3);
  std::vector<std::string> words;
  for (int i = 0; i < 20'000; ++i) {
    std::string word;
    for (std::size_t n = 1 + random() % 9; n > 0; --n)
      word += "etaoinshrdlucmfwypvbgkjqxz"[random() % (random() % 26 + 1)];
    words.push_back(std::move(word));
  }
  const std::string_view others[] = {", ",  ". ",   "\n",     "\n\n    ", " 1234",
                                     "(x)", " {\n", "don't ", "中文字符", "é"};
  std::string text;
  while (text.size() < bytes) {
    const double u = std::uniform_real_distribution<double>(0, 1)(random);
    text += words[static_cast<std::size_t>(19'999 * u * u * u * u)];
    text += random() % 5 == 0 ? others[random() % std::size(others)] : " ";
  }
  return text;
}

std::string read_text(const char* path) {
  std::ifstream file(path);
  std::stringstream content;
  content << file.rdbuf();
  return content.str();
}

int run(int argc, char** argv) {
  if (argc < 2) {
    fmt::print(stderr, "tokenizer_perf MODEL_DIR [TEXT_FILE]\n");
    return 2;
  }
  const std::string text = argc > 2 ? read_text(argv[2]) : made_up_text(8 << 20);
  const double megabytes = static_cast<double>(text.size()) / 1e6;
  std::unique_ptr<Tokenizer> tokenizer;
  const double load = best_of(3, [&] { tokenizer = Tokenizer::load(argv[1], /*cache_bytes=*/0); });

  std::vector<TokenId> ids;
  const double start = now();
  ids = tokenizer->encode(text, false);
  const double cold = now() - start;
  const double warm = best_of(3, [&] { ids = tokenizer->encode(text, false); });

  const auto detokenize = [&] {
    Detokenizer detokenizer(*tokenizer, true);
    for (const TokenId id : ids) detokenizer.push(id);
  };
  const double per_token = best_of(3, detokenize) / static_cast<double>(ids.size());
  fmt::print(
      "load {:.1f} ms, encode cold {:.1f} MB/s, warm {:.1f} MB/s, {:.2f} bytes/token, "
      "detokenize {:.0f} ns/token\n",
      load * 1e3, megabytes / cold, megabytes / warm,
      static_cast<double>(text.size()) / static_cast<double>(ids.size()), per_token * 1e9);
  return 0;
}

}  // namespace
}  // namespace quire

int main(int argc, char** argv) {
  try {
    return quire::run(argc, argv);
  } catch (const quire::Failure& failure) {
    fmt::print(stderr, "{}\n", failure.what());
    return 1;
  }
}
