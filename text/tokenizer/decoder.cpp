#include "text/tokenizer/decoder.h"

#include <fmt/format.h>

#include <algorithm>

#include "text/tokenizer/decode_stages.h"
#include "text/tokenizer/json_field.h"
#include "text/tokenizer/metaspace.h"
#include "text/utf8.h"

namespace quire {
namespace {

class OutputStage final : public DecodeStage {
 public:
  explicit OutputStage(std::string& out) : out_(out) {}
  void push(std::string_view piece) override { out_ += piece; }
  void finish() override {}

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

std::unique_ptr<Decoder> load_strip(const JsonField& field) {
  std::string content;
  utf8_append(content, field.at("content").character());
  const auto count = [&](std::string_view key) {
    return static_cast<std::size_t>(field.at(key).integer(0, INT32_MAX));
  };
  return std::make_unique<StripDecoder>(std::move(content), count("start"), count("stop"));
}

std::unique_ptr<Decoder> load_metaspace_decoder(const JsonField& field) {
  auto options = load_metaspace(field);
  return std::make_unique<MetaspaceDecoder>(std::move(options.replacement),
                                            options.scheme != PrependScheme::never);
}

void load_into(const JsonField& field, Decoders& decoders) {
  const std::string type = field.required_text("type");
  if (type == "Sequence") {
    for (const JsonField& item : field.at("decoders").items()) load_into(item, decoders);
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
    decoders.push_back(std::make_unique<WordPieceDecoder>(field.required_text("prefix"),
                                                          field.required_flag("cleanup")));
  } else if (type == "BPEDecoder") {
    decoders.push_back(std::make_unique<BpeSuffixDecoder>(field.required_text("suffix")));
  } else if (type == "CTC") {
    decoders.push_back(std::make_unique<CtcDecoder>(field.required_text("pad_token"),
                                                    field.required_text("word_delimiter_token"),
                                                    field.required_flag("cleanup")));
  } else {
    field.at("type").fail(fmt::format("\"{}\" is not a decoder that is known", type));
  }
}

}  // namespace

Decoders load_decoders(const JsonField& field) {
  Decoders decoders;
  load_into(field, decoders);
  return decoders;
}

Decoders default_decoders() {
  Decoders decoders;
  decoders.push_back(std::make_unique<SpaceJoinDecoder>());
  return decoders;
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
