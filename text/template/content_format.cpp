#include "text/template/content_format.h"

#include <algorithm>
#include <map>
#include <set>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "jinja/syntax/statements.h"

namespace quire {
namespace {

using namespace jinja;
using Words = std::set<std::string>;

constexpr std::string_view kContent = "content";

// Below filters, tests and slices, through which a list stays the same list to these rules; null
// where a filter stands on a block's text.
const Expr* bare(const Expr* expr) {
  while (expr != nullptr) {
    if (const auto* filter = dynamic_cast<const FilterExpr*>(expr)) {
      expr = filter->subject.get();
    } else if (const auto* test = dynamic_cast<const TestExpr*>(expr)) {
      expr = test->subject.get();
    } else if (const auto* slice = dynamic_cast<const SliceExpr*>(expr)) {
      expr = slice->object.get();
    } else {
      break;
    }
  }
  return expr;
}

const NameExpr* as_name(const Expr* expr) {
  const auto* name = dynamic_cast<const NameExpr*>(expr);
  return name != nullptr && name->use == NameExpr::Use::load ? name : nullptr;
}

// "a", or "a.b" of attributes; empty for all else.
std::string path_of(const Expr* expr) {
  if (const NameExpr* name = as_name(expr)) return name->name;
  const auto* attribute = dynamic_cast<const AttributeExpr*>(expr);
  if (attribute == nullptr || !attribute->name.is_string()) return {};
  std::string path = path_of(attribute->object.get());
  if (!path.empty()) path.append(".").append(attribute->name.string());
  return path;
}

bool is_content(const Value& key) { return key.is_string() && key.string() == kContent; }

// x of x.content and x["content"]; empty for all else.
std::string owner_of_content(const Expr* expr) {
  expr = bare(expr);
  if (const auto* attribute = dynamic_cast<const AttributeExpr*>(expr))
    return is_content(attribute->name) ? path_of(attribute->object.get()) : std::string();
  const auto* item = dynamic_cast<const ItemExpr*>(expr);
  const auto* key = item ? dynamic_cast<const ConstExpr*>(item->key.get()) : nullptr;
  return key != nullptr && is_content(key->value) ? path_of(item->object.get()) : std::string();
}

struct Loop {
  const ForStmt* statement;
  int macro;  // the innermost around it; -1: none
};

struct Macro {
  const MacroStmt* statement;
  int outer;
  Words contents{};  // parameters that are given a message's content
};

// Arguments that are a message's content.
struct Given {
  std::set<std::size_t> positions{};
  Words names{};
};

class Detection {
 public:
  explicit Detection(const TemplateTree& tree) {
    for (const StmtPtr& statement : tree.body) collect(*statement, -1);
  }

  ContentFormat format() {
    follow("messages");
    for (const Loop& loop : loops_) {
      if (!lists_.contains(path_of(bare(loop.statement->items.get())))) continue;
      const auto* item = dynamic_cast<const NameExpr*>(loop.statement->target.get());
      // vLLM's detection breaks off at a loop over messages that takes them apart.
      if (item == nullptr) return ContentFormat::text;
      messages_.insert(item->name);
    }
    for (const CallExpr* call : calls_) note(*call);
    for (Macro& macro : macros_) give(macro);
    for (const Loop& loop : loops_) {
      if (!is_over_content(loop)) continue;
      const bool has_name = dynamic_cast<const NameExpr*>(loop.statement->target.get()) != nullptr;
      return has_name ? ContentFormat::parts : ContentFormat::text;
    }
    return ContentFormat::text;
  }

 private:
  void collect(Node& node, int macro) {
    if (const auto* loop = dynamic_cast<const ForStmt*>(&node)) {
      loops_.push_back({loop, macro});
    } else if (const auto* call = dynamic_cast<const CallExpr*>(&node)) {
      if (as_name(call->callee.get()) != nullptr) calls_.push_back(call);
    } else if (const auto* set = dynamic_cast<const SetStmt*>(&node)) {
      collect_names(*set);
    } else if (const auto* statement = dynamic_cast<const MacroStmt*>(&node)) {
      macros_.push_back({statement, macro});
      macro = static_cast<int>(macros_.size()) - 1;
    }
    node.each_child([&](Node& child) { collect(child, macro); });
  }

  void name(const Expr* value, std::string alias) {
    std::string path = path_of(bare(value));
    if (!path.empty()) aliases_.emplace(std::move(path), std::move(alias));
  }

  void collect_names(const SetStmt& set) {
    if (const auto* target = dynamic_cast<const NameExpr*>(set.target.get())) {
      name(set.value.get(), target->name);
      const auto* call = dynamic_cast<const CallExpr*>(set.value.get());
      const NameExpr* callee = call ? as_name(call->callee.get()) : nullptr;
      if (callee == nullptr || callee->name != "namespace") return;
      for (const auto& [key, value] : call->arguments.named)
        name(value.get(), target->name + "." + key);
    } else if (const auto* member = dynamic_cast<const NamespaceTarget*>(set.target.get())) {
      name(set.value.get(), member->name + "." + member->attribute);
    }
  }

  // All that `list` is called by assignments, anywhere and in any order.
  void follow(std::string list) {
    std::vector<std::string> open{list};
    lists_.insert(std::move(list));
    while (!open.empty()) {
      const auto [begin, end] = aliases_.equal_range(open.back());
      open.pop_back();
      for (auto alias = begin; alias != end; ++alias)
        if (lists_.insert(alias->second).second) open.push_back(alias->second);
    }
  }

  bool is_content_of_message(const Expr* expr) const {
    return messages_.contains(owner_of_content(expr));
  }

  void note(const CallExpr& call) {
    Given& given = given_[as_name(call.callee.get())->name];
    const auto& positional = call.arguments.positional;
    for (std::size_t i = 0; i < positional.size(); ++i)
      if (is_content_of_message(positional[i].get())) given.positions.insert(i);
    for (const auto& [key, value] : call.arguments.named)
      if (is_content_of_message(value.get())) given.names.insert(key);
  }

  void give(Macro& macro) const {
    const auto found = given_.find(macro.statement->name);
    if (found == given_.end()) return;
    const auto& parameters = macro.statement->macro.parameters;
    for (std::size_t i = 0; i < parameters.size(); ++i) {
      const std::string& name = parameters[i]->name;
      if (found->second.positions.contains(i) || found->second.names.contains(name))
        macro.contents.insert(name);
    }
  }

  bool is_over_content(const Loop& loop) const {
    const Expr* items = loop.statement->items.get();
    if (is_content_of_message(items)) return true;
    const NameExpr* list = as_name(items);
    if (list == nullptr) return false;
    if (loop.macro < 0) return list->name == kContent;
    int macro = loop.macro;
    while (macro >= 0 && of(macro).contents.empty()) macro = of(macro).outer;
    return macro >= 0 && of(macro).contents.contains(list->name);
  }

  const Macro& of(int macro) const { return macros_[static_cast<std::size_t>(macro)]; }

  std::vector<Loop> loops_;  // in the template's order, as all of these
  std::vector<Macro> macros_;
  std::vector<const CallExpr*> calls_;
  std::map<std::string, Given> given_;               // to macros by name, by all calls
  std::multimap<std::string, std::string> aliases_;  // what is assigned, and to what
  Words lists_;                                      // what the list of messages is called
  Words messages_;                                   // what a message is called
};

}  // namespace

std::optional<ContentFormat> find_content_format(std::string_view name) {
  for (const ContentFormat format : {ContentFormat::text, ContentFormat::parts})
    if (name_of(format) == name) return format;
  return std::nullopt;
}

std::string_view name_of(ContentFormat format) {
  return format == ContentFormat::text ? "string" : "openai";
}

ContentFormat content_format_of(const TemplateTree& tree) { return Detection(tree).format(); }

}  // namespace quire
