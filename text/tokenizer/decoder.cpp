#include "text/tokenizer/decoder.h"

#include <fmt/format.h>

#include <algorithm>

#include "base/json.h"
#include "base/utf8.h"
#include "text/tokenizer/decode_stages.h"
#include "text/tokenizer/metaspace.h"

namespace quire {
namespace {

class OutputStage final : public DecodeStage {
 public:
  explicit OutputStage(std::string& out) : out_(out) {}
  void push(std::string_view piece) override { out_ += piece; }
  void finish() override {}
  bool holds_back() const override { return false; }

 private:
  std::string& out_;
};

class WholeTokenStage final : public DecodeStage {
 public:
  explicit WholeTokenStage(DecodeStage& next) : next_(next) {}
  void push(std::string_view piece) override { token_ += piece; }
  void finish() override {
    next_.push(token_);
    next_.finish();
  }

 private:
  DecodeStage& next_;
  std::string token_;
};

std::unique_ptr<Decoder> load_strip(const Json& field) {
  std::string content(field.at("content").as_character());
  const auto count = [&](std::string_view key) {
    return static_cast<std::size_t>(field.at(key).as_integer({0, INT32_MAX}));
  };
  return std::make_unique<StripDecoder>(std::move(content), count("start"), count("stop"));
}

std::unique_ptr<Decoder> load_metaspace_decoder(const Json& field) {
  auto options = load_metaspace(field);
  return std::make_unique<MetaspaceDecoder>(std::move(options.replacement),
                                            options.scheme != PrependScheme::never);
}

void load_into(const Json& field, Decoders& decoders) {
  const std::string type = field.need_text("type");
  if (type == "Sequence") {
    for (const Json& item : field.at("decoders").items()) load_into(item, decoders);
  } else if (type == "ByteLevel") {
    decoders.push_back(std::make_unique<ByteLevelDecoder>());
  } else if (type == "ByteFallback") {
    decoders.push_back(std::make_unique<ByteFallbackDecoder>());
  } else if (type == "Fuse") {
    decoders.push_back(std::make_unique<FuseDecoder>());
  } else if (type == "Replace") {
    decoders.push_back(std::make_unique<ReplaceDecoder>(field));
  } else if (type == "Strip") {
    decoders.push_back(load_strip(field));
  } else if (type == "Metaspace") {
    decoders.push_back(load_metaspace_decoder(field));
  } else if (type == "WordPiece") {
    decoders.push_back(std::make_unique<WordPieceDecoder>(field.need_text("prefix"),
                                                          field.at("cleanup").as_boolean()));
  } else if (type == "BPEDecoder") {
    decoders.push_back(std::make_unique<BpeSuffixDecoder>(field.need_text("suffix")));
  } else if (type == "CTC") {
    decoders.push_back(std::make_unique<CtcDecoder>(field.need_text("pad_token"),
                                                    field.need_text("word_delimiter_token"),
                                                    field.at("cleanup").as_boolean()));
  } else {
    field.at("type").fail(fmt::format("\"{}\" is not a decoder that is known", type));
  }
}

}  // namespace

Decoders load_decoders(const Json& field) {
  Decoders decoders;
  load_into(field, decoders);
  return decoders;
}

Decoders default_decoders() {
  Decoders decoders;
  decoders.push_back(std::make_unique<SpaceJoinDecoder>());
  return decoders;
}

bool DecodeChain::holds_back() const {
  return std::ranges::any_of(stages_, [](const auto& stage) { return stage->holds_back(); });
}

DecodeChain::DecodeChain(const Decoders& decoders) : out_(std::make_unique<std::string>()) {
  stages_.push_back(std::make_unique<OutputStage>(*out_));
  for (auto decoder = decoders.rbegin(); decoder != decoders.rend(); ++decoder) {
    const bool joined = std::any_of(std::next(decoder), decoders.rend(),
                                    [](const auto& earlier) { return earlier->joins(); });
    stages_.push_back((*decoder)->start(*stages_.back(), joined));
    if (joined && (*decoder)->needs_whole_tokens()) {
      stages_.push_back(std::make_unique<WholeTokenStage>(*stages_.back()));
    }
  }
}

}  // namespace quire
