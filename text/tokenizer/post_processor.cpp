#include "text/tokenizer/post_processor.h"

#include <fmt/format.h>

#include "base/json.h"
#include "text/tokenizer/vocab.h"

namespace quire {

std::vector<TokenId> joined(const PostProcessor::Parts& parts) {
  std::vector<TokenId> ids;
  for (const auto& part : parts) ids.insert(ids.end(), part.begin(), part.end());
  return ids;
}

namespace {

TokenId id_of(const Json& field) {
  return static_cast<TokenId>(field.as_integer({0, kMaxTokenId}));
}

// ["</s>", 2]
TokenId id_of_pair(const Json& field) {
  const auto pair = field.items();
  if (pair.size() != 2) field.fail("must be [token, id]");
  return id_of(pair[1]);
}

// ByteLevel: it only moves offsets, which nobody asks for here.
class Unchanged final : public PostProcessor {
 public:
  Parts with_specials(Parts parts) const override { return parts; }
};

// BertProcessing and RobertaProcessing: <cls> first <sep>, then the others.
class ClassifierProcessing final : public PostProcessor {
 public:
  ClassifierProcessing(const Json& field, bool separate_before_second)
      : cls_(id_of_pair(field.at("cls"))),
        sep_(id_of_pair(field.at("sep"))),
        separate_before_second_(separate_before_second) {}

  Parts with_specials(Parts parts) const override {
    for (std::size_t i = 0; i < parts.size(); ++i) {
      if (i == 0) parts[i].insert(parts[i].begin(), cls_);
      if (i > 0 && separate_before_second_) parts[i].insert(parts[i].begin(), sep_);
      parts[i].push_back(sep_);
    }
    return parts;
  }

 private:
  TokenId cls_, sep_;
  bool separate_before_second_;
};

class Ends final : public PostProcessor {
 public:
  Ends(std::vector<TokenId> before, std::vector<TokenId> behind)
      : before_(std::move(before)), behind_(std::move(behind)) {}

  Parts with_specials(Parts parts) const override {
    for (auto& part : parts) {
      part.insert(part.begin(), before_.begin(), before_.end());
      part.insert(part.end(), behind_.begin(), behind_.end());
    }
    return parts;
  }

 private:
  std::vector<TokenId> before_, behind_;
};

class Template final : public PostProcessor {
 public:
  explicit Template(const Json& field)
      : single_(load(field, field.at("single"), 1)), pair_(load(field, field.at("pair"), 2)) {}

  Parts with_specials(Parts parts) const override { return apply(std::move(parts), true); }
  Parts without_specials(Parts parts) const override { return apply(std::move(parts), false); }

 private:
  struct Item {
    std::vector<TokenId> special;
    std::size_t sequence = 0;  // which part, if `special` is empty
  };

  static std::vector<Item> load(const Json& field, const Json& pieces, std::size_t num_sequences) {
    std::vector<Item> items;
    for (const Json& piece : pieces.items()) {
      if (const auto sequence = piece.find({"Sequence"})) {
        const bool second = sequence->at("id").as_string() == "B";
        if (second && num_sequences < 2) sequence->fail("there is no second sequence here");
        items.push_back({{}, second ? std::size_t{1} : 0});
      } else {
        const Json name = piece.at("SpecialToken").at("id");
        const auto special = field.at("special_tokens").find({name.as_string()});
        if (!special) name.fail("is not among the special_tokens");
        Item item;
        for (const Json& id : special->at("ids").items()) item.special.push_back(id_of(id));
        if (!item.special.empty()) items.push_back(std::move(item));
      }
    }
    return items;
  }

  // The pair's form for two parts, also where an earlier processor has made two of one.
  Parts apply(Parts parts, bool specials) const {
    if (parts.size() != 2) parts = {joined(parts)};
    Parts out;
    for (const Item& item : parts.size() == 2 ? pair_ : single_) {
      if (item.special.empty()) {
        out.push_back(parts[item.sequence]);
      } else if (specials) {
        out.push_back(item.special);
      }
    }
    return out;
  }

  std::vector<Item> single_, pair_;
};

class Sequence final : public PostProcessor {
 public:
  explicit Sequence(const Json& field) {
    for (const Json& item : field.at("processors").items()) {
      steps_.push_back(load_post_processor(item));
    }
  }
  Parts with_specials(Parts parts) const override {
    for (const auto& step : steps_) parts = step->with_specials(std::move(parts));
    return parts;
  }
  Parts without_specials(Parts parts) const override {
    for (const auto& step : steps_) parts = step->without_specials(std::move(parts));
    return parts;
  }

 private:
  std::vector<std::unique_ptr<PostProcessor>> steps_;
};

}  // namespace

std::unique_ptr<PostProcessor> make_ends(std::vector<TokenId> before, std::vector<TokenId> behind) {
  return std::make_unique<Ends>(std::move(before), std::move(behind));
}

std::unique_ptr<PostProcessor> load_post_processor(const Json& field) {
  const std::string type = field.need_text("type");
  if (type == "ByteLevel") return std::make_unique<Unchanged>();
  if (type == "TemplateProcessing") return std::make_unique<Template>(field);
  if (type == "BertProcessing") return std::make_unique<ClassifierProcessing>(field, false);
  if (type == "RobertaProcessing") return std::make_unique<ClassifierProcessing>(field, true);
  if (type == "Sequence") return std::make_unique<Sequence>(field);
  field.at("type").fail(fmt::format("\"{}\" is not a post-processor that is known", type));
}

}  // namespace quire
