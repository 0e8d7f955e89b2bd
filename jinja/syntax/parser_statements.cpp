#include <algorithm>
#include <set>

#include "jinja/error.h"
#include "jinja/syntax/parser.h"

namespace quire::jinja {
namespace {

using Type = Token::Type;

constexpr std::size_t kMaxSourceBytes = 4 << 20;

}  // namespace

bool Parser::skip_op(std::string_view sign) {
  if (!current().is_op(sign)) return false;
  take();
  return true;
}

bool Parser::skip_name(std::string_view word) {
  if (!current().is_name(word)) return false;
  take();
  return true;
}

Token Parser::expect(Type type) {
  if (!current().is(type))
    fail_expected(type == Type::name ? "name" : describe(Token{type, {}, {}, 0}));
  return take();
}

void Parser::expect_op(std::string_view sign) {
  if (!skip_op(sign)) fail_expected(sign);
}

void Parser::expect_name(std::string_view word) {
  if (!skip_name(word)) fail_expected(word);
}

void Parser::fail_here(const std::string& message) const {
  fail(ErrorKind::syntax, message, current().line);
}

void Parser::fail_expected(std::string_view what) const {
  const std::string expected(what);
  if (current().is(Type::end))
    fail_here("unexpected end of template, expected '" + expected + "'.");
  fail_here("expected token '" + expected + "', got '" + describe(current()) + "'");
}

void Parser::fail_depth() const {
  fail(ErrorKind::recursion, "maximum recursion depth exceeded: the template is nested too deeply",
       current().line);
}

void Parser::fail_tag(const std::string* unknown) {
  std::string message =
      unknown ? "Encountered unknown tag '" + *unknown + "'." : "Unexpected end of template.";
  if (!end_tags_.empty()) {
    std::string looking_for;
    for (std::string_view tag : end_tags_.back()) {
      looking_for += (looking_for.empty() ? "'" : " or '") + std::string(tag) + "'";
    }
    const bool misplaced =
        unknown && std::any_of(end_tags_.begin(), end_tags_.end(), [&](const Words& words) {
          return std::find(words.begin(), words.end(), *unknown) != words.end();
        });
    message += misplaced ? " You probably made a nesting mistake. Jinja is expecting this tag, but "
                           "currently looking for " +
                               looking_for + "."
                         : " Jinja was looking for the following tags: " + looking_for + ".";
  }
  if (!open_tags_.empty()) {
    message += " The innermost block that needs to be closed is '" + open_tags_.back() + "'.";
  }
  fail_here(message);
}

// Text between tags, or what stands in {{ }}.
ExprPtr Parser::parse_printed() {
  const int line = current().line;
  if (current().is(Type::data)) {
    auto data = std::make_unique<DataExpr>();
    data->text = take().text;
    return finish(std::move(data), line);
  }
  expect(Type::variable_begin);
  ExprPtr printed = parse_tuple({});
  expect(Type::variable_end);
  return printed;
}

Body Parser::parse_body(const Words& end_tags) {
  const Nested nested(*this);
  if (!end_tags.empty()) end_tags_.push_back(end_tags);
  Body body;
  std::unique_ptr<OutputStmt> output;
  const auto flush = [&] {
    if (!output) return;
    const int line = output->items.front()->line;
    body.push_back(finish(std::move(output), line));
    output = nullptr;
  };
  while (!current().is(Type::end)) {
    if (!current().is(Type::block_begin)) {
      if (!output) output = std::make_unique<OutputStmt>();
      output->items.push_back(parse_printed());
    } else {
      flush();
      expect(Type::block_begin);
      const bool ends = current().is(Type::name) && std::find(end_tags.begin(), end_tags.end(),
                                                              current().text) != end_tags.end();
      if (ends) {
        end_tags_.pop_back();
        return body;
      }
      body.push_back(parse_statement());
      expect(Type::block_end);
    }
  }
  if (!end_tags.empty()) fail_tag(nullptr);
  flush();
  return body;
}

StmtPtr Parser::parse_statement() {
  if (!current().is(Type::name)) fail_here("tag name expected");
  const std::string tag = current().text;
  const int line = current().line;
  open_tags_.push_back(tag);
  using Rule = StmtPtr (Parser::*)();
  static const std::vector<std::pair<std::string_view, Rule>> kRules = {
      {"if", &Parser::parse_if},
      {"for", &Parser::parse_for},
      {"set", &Parser::parse_set},
      {"macro", &Parser::parse_macro},
      {"call", &Parser::parse_call_block},
      {"generation", &Parser::parse_generation},
      {"filter", &Parser::parse_filter_block},
      {"with", &Parser::parse_with},
      {"autoescape", &Parser::parse_autoescape},
      {"block", &Parser::parse_block},
      {"print", &Parser::parse_print}};
  const auto rule =
      std::find_if(kRules.begin(), kRules.end(), [&](const auto& r) { return r.first == tag; });
  StmtPtr statement;
  if (rule != kRules.end()) {
    take();
    statement = (this->*rule->second)();
  } else if (tag == "break" || tag == "continue") {
    take();
    auto control = std::make_unique<LoopControlStmt>();
    control->flow = tag == "break" ? Flow::stop_loop : Flow::next_item;
    statement = std::move(control);
  } else if (tag == "include" || tag == "import" || tag == "from" || tag == "extends") {
    take();
    statement = parse_load(tag);
  } else {
    open_tags_.pop_back();
    fail_tag(&tag);
  }
  open_tags_.pop_back();
  return finish(std::move(statement), line);
}

Body Parser::parse_block_body(const Words& end_tags) {
  skip_op(":");
  expect(Type::block_end);
  return parse_body(end_tags);
}

StmtPtr Parser::parse_if() {
  auto statement = std::make_unique<IfStmt>();
  for (;;) {
    ExprPtr test = parse_tuple({.with_conditional = false});
    statement->branches.push_back({std::move(test), parse_block_body({"elif", "else", "endif"})});
    const std::string end = take().text;
    if (end == "elif") continue;
    if (end == "else") {
      statement->otherwise = parse_block_body({"endif"});
      take();
    }
    return statement;
  }
}

StmtPtr Parser::parse_for() {
  auto statement = std::make_unique<ForStmt>();
  statement->target = parse_target(false);
  expect_name("in");
  statement->items = parse_tuple({.with_conditional = false});
  if (skip_name("if")) statement->test = parse_expression();
  statement->recursive = skip_name("recursive");
  statement->body = parse_block_body({"endfor", "else"});
  if (take().text == "else") {
    statement->otherwise = parse_block_body({"endfor"});
    take();
  }
  return statement;
}

StmtPtr Parser::parse_set() {
  ExprPtr target = parse_target(true);
  if (skip_op("=")) {
    auto statement = std::make_unique<SetStmt>();
    statement->target = std::move(target);
    statement->value = parse_tuple({});
    return statement;
  }
  auto statement = std::make_unique<SetBlockStmt>();
  statement->target = std::move(target);
  while (skip_op("|")) statement->filter = parse_filter(std::move(statement->filter));
  statement->body = parse_block_body({"endset"});
  take();
  return statement;
}

void Parser::parse_signature(MacroBody& macro) {
  expect_op("(");
  std::set<std::string> names;
  while (!current().is_op(")")) {
    if (!macro.parameters.empty()) expect_op(",");
    auto parameter = parse_target_name();
    parameter->set_parameter();
    if (!names.insert(parameter->name).second) {
      fail_here("duplicate argument '" + parameter->name + "' in function definition");
    }
    if (skip_op("=")) {
      macro.defaults.push_back(parse_expression());
    } else if (!macro.defaults.empty()) {
      fail_here("non-default argument follows default argument");
    }
    macro.parameters.push_back(std::move(parameter));
  }
  expect_op(")");
}

StmtPtr Parser::parse_macro() {
  auto statement = std::make_unique<MacroStmt>();
  statement->name = parse_target_name()->name;
  parse_signature(statement->macro);
  statement->macro.body = parse_block_body({"endmacro"});
  take();
  return statement;
}

StmtPtr Parser::parse_call_block() {
  auto statement = std::make_unique<CallBlockStmt>();
  if (current().is_op("(")) parse_signature(statement->macro);
  ExprPtr call = parse_expression();
  if (dynamic_cast<CallExpr*>(call.get()) == nullptr) fail_here("expected call");
  statement->call.reset(static_cast<CallExpr*>(call.release()));
  statement->macro.body = parse_block_body({"endcall"});
  take();
  return statement;
}

StmtPtr Parser::parse_generation() {
  auto statement = std::make_unique<CallBlockStmt>();
  statement->macro.body = parse_block_body({"endgeneration"});
  take();
  return statement;
}

StmtPtr Parser::parse_filter_block() {
  auto statement = std::make_unique<FilterBlockStmt>();
  statement->filter = parse_filter(nullptr);
  while (skip_op("|")) statement->filter = parse_filter(std::move(statement->filter));
  statement->body = parse_block_body({"endfilter"});
  take();
  return statement;
}

StmtPtr Parser::parse_with() {
  auto statement = std::make_unique<WithStmt>();
  while (!current().is(Type::block_end)) {
    if (!statement->targets.empty()) expect_op(",");
    ExprPtr target = parse_target(false);
    target->set_parameter();
    statement->targets.push_back(std::move(target));
    expect_op("=");
    statement->values.push_back(parse_expression());
  }
  statement->body = parse_block_body({"endwith"});
  take();
  return statement;
}

StmtPtr Parser::parse_autoescape() {
  auto statement = std::make_unique<AutoescapeStmt>();
  statement->enabled = parse_expression();
  statement->body = parse_block_body({"endautoescape"});
  take();
  return statement;
}

StmtPtr Parser::parse_block() {
  auto statement = std::make_unique<BlockStmt>();
  statement->name = expect(Type::name).text;
  statement->scoped = skip_name("scoped");
  statement->required = skip_name("required");
  statement->body = parse_block_body({"endblock"});
  take();
  skip_name(statement->name);
  return statement;
}

StmtPtr Parser::parse_print() {
  auto statement = std::make_unique<OutputStmt>();
  while (!current().is(Type::block_end)) {
    if (!statement->items.empty()) expect_op(",");
    statement->items.push_back(parse_expression());
  }
  return statement;
}

void Parser::skip_import_context() {
  if ((current().is_name("with") || current().is_name("without")) &&
      following().is_name("context")) {
    take();
    take();
  }
}

StmtPtr Parser::parse_load(std::string_view tag) {
  auto statement = std::make_unique<LoadStmt>();
  statement->is_extends = tag == "extends";
  statement->name = parse_expression();
  if (tag == "include" && current().is_name("ignore") && following().is_name("missing")) {
    take();
    take();
  }
  if (tag == "import") {
    expect_name("as");
    statement->sets.push_back(parse_target_name()->name);
  }
  if (tag == "from") {
    expect_name("import");
    parse_imported_names(*statement);
  }
  if (tag != "extends") skip_import_context();
  return statement;
}

void Parser::parse_imported_names(LoadStmt& statement) {
  do {
    if (following().is_name("context")) return;
    const std::string name = parse_target_name()->name;
    if (name.starts_with('_')) fail_here("names starting with an underline can not be imported");
    statement.sets.push_back(skip_name("as") ? parse_target_name()->name : name);
  } while (skip_op(","));
}

std::unique_ptr<TemplateTree> parse_template(std::string_view source) {
  if (source.size() > kMaxSourceBytes) {
    fail(ErrorKind::limit,
         "the template has more than " + std::to_string(kMaxSourceBytes) + " bytes");
  }
  auto tree = std::make_unique<TemplateTree>();
  tree->body = Parser(tokenize(source)).parse();
  bind_template(*tree);
  return tree;
}

}  // namespace quire::jinja
