// For property_test.py: reads {"schema": …, "count": n} per line and answers {"texts": […]} of texts that
// were drawn token by token under the masks, {"error": "…"} for a refused schema. Texts that came to no
// end within their tokens are left out. argv[1]: a folder with tokenizer.json.

#include <boost/json.hpp>
#include <iostream>
#include <random>
#include <string>

#include "engine/structured/compiled_grammar.h"
#include "text/tokenizer/tokenizer.h"

namespace quire::structured {
namespace {

namespace json = boost::json;

class Sampler {
 public:
  explicit Sampler(const char* model) {
    const auto tokenizer = Tokenizer::load(model);
    for (const char* name : {"</s>", "<eos>", "[SEP]", "<|im_end|>", "<|endoftext|>"}) {
      if (const auto id = tokenizer->token_to_id(name)) end_ = *id;
    }
    const auto& special = tokenizer->special_strings();
    if (const auto eos = special.find("eos_token"); eos != special.end()) {
      end_ = tokenizer->token_to_id(eos->second).value_or(end_);
    }
    context_.vocabulary = Vocabulary::of(*tokenizer, std::span(&end_, 1));
    // What is drawn here does not depend on how fast, or how busy, the machine is.
    context_.limits.compile_time = context_.limits.step_time = std::chrono::minutes(5);
  }

  json::object answer(const json::object& question) {
    GrammarSpec spec;
    spec.kind = GrammarSpec::Kind::json_schema;
    spec.source = json::serialize(question.at("schema"));
    json::array texts;
    try {
      const auto grammar = CompiledGrammar::compile(spec, context_);
      for (auto n = question.at("count").to_number<int>(); n > 0; --n) {
        const std::string text = draw(grammar);
        if (!text.empty()) texts.emplace_back(text);
      }
    } catch (const GrammarFailure& failure) {
      return {{"error", failure.what()}, {"error_kind", to_string(failure.kind())}};
    } catch (const Unspellable&) {
      return {{"error", "the vocabulary has no token that may come first"},
              {"error_kind", "unspellable"}};
    }
    return {{"texts", std::move(texts)}};
  }

 private:
  static constexpr int kMostTokens = 400;
  struct Unspellable {};  // a small vocabulary may lack a character that every text begins with

  std::string draw(const std::shared_ptr<CompiledGrammar>& grammar) {
    GrammarMatcher matcher(grammar);
    std::vector<std::uint32_t> words(context_.vocabulary->words());
    std::string text;
    for (int step = 0; step < kMostTokens; ++step) {
      matcher.fill_mask(words);
      std::vector<TokenId> all, closing;
      for (TokenId id = 0; id < context_.vocabulary->size(); ++id) {
        if ((words[static_cast<std::size_t>(id) / 32] >> id % 32 & 1) == 0) continue;
        all.push_back(id);
        if (context_.vocabulary->bytes(id).find_first_of("\"]}") != std::string::npos || id == end_) {
          closing.push_back(id);
        }
      }
      if (all.empty() && text.empty()) throw Unspellable();
      if (all.empty()) throw std::runtime_error("a dead end after " + text);
      // Towards an end, more so the longer it takes.
      const bool close = !closing.empty() && static_cast<int>(random_() % 100) < 20 + step;
      const auto& from = close ? closing : all;
      const TokenId id = from[random_() % from.size()];
      if (!matcher.accept(id)) throw std::runtime_error("a token of the mask is refused after " + text);
      if (id == end_) return text;
      text += context_.vocabulary->bytes(id);
    }
    return {};
  }

  TokenId end_ = 0;
  GrammarContext context_;
  std::mt19937 random_{1};
};

}  // namespace
}  // namespace quire::structured

int main(int argc, char** argv) {
  if (argc != 2) return 2;
  try {
    quire::structured::Sampler sampler(argv[1]);
    for (std::string line; std::getline(std::cin, line);) {
      std::cout << boost::json::serialize(sampler.answer(boost::json::parse(line).as_object())) << '\n';
    }
  } catch (const std::exception& error) {
    std::cerr << error.what() << '\n';
    return 1;
  }
  return 0;
}
