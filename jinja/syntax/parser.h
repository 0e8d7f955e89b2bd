#pragma once
// Tokens to a tree; statements in parser_statements.cpp, expressions in parser_expressions.cpp.

#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "jinja/syntax/lexer.h"
#include "jinja/syntax/statements.h"

namespace quire::jinja {

class Parser {
 public:
  explicit Parser(std::vector<Token> tokens) : tokens_(std::move(tokens)) {}
  Body parse() { return parse_body({}); }

 private:
  using Words = std::vector<std::string_view>;

  // Statements up to one of the tags; stops at its name.
  Body parse_body(const Words& end_tags);
  ExprPtr parse_printed();
  StmtPtr parse_statement();
  StmtPtr parse_if();
  StmtPtr parse_for();
  StmtPtr parse_set();
  StmtPtr parse_macro();
  StmtPtr parse_call_block();
  StmtPtr parse_generation();
  StmtPtr parse_filter_block();
  StmtPtr parse_with();
  StmtPtr parse_autoescape();
  StmtPtr parse_block();
  StmtPtr parse_print();
  StmtPtr parse_load(std::string_view tag);
  void parse_imported_names(LoadStmt& statement);
  void skip_import_context();
  void parse_signature(MacroBody& macro);
  // The end of a tag, its body, and the name of the tag that ends it.
  Body parse_block_body(const Words& end_tags);
  [[noreturn]] void fail_tag(const std::string* unknown);

  ExprPtr parse_target(bool with_namespace);
  std::unique_ptr<NameExpr> parse_target_name();
  struct TupleOptions {
    bool primary_only = false;
    bool with_conditional = true;
    bool parenthesized = false;
    bool with_namespace = false;
  };
  ExprPtr parse_tuple(TupleOptions options);
  ExprPtr parse_expression(bool with_conditional = true);
  ExprPtr parse_or();
  ExprPtr parse_and();
  ExprPtr parse_not();
  ExprPtr parse_compare();
  ExprPtr parse_sum();
  ExprPtr parse_concat();
  ExprPtr parse_product();
  ExprPtr parse_power();
  ExprPtr parse_unary(bool with_filter = true);
  ExprPtr parse_primary(bool with_namespace = false);
  ExprPtr parse_named(bool with_namespace);
  ExprPtr parse_list();
  ExprPtr parse_dict();
  ExprPtr parse_postfix(ExprPtr expr);
  ExprPtr parse_filters_and_tests(ExprPtr expr);
  ExprPtr parse_subscript(ExprPtr object);
  ExprPtr parse_dotted(ExprPtr object, int line);
  ExprPtr parse_subscript_key();
  ExprPtr parse_call(ExprPtr callee);
  CallArguments parse_arguments();
  ExprPtr parse_filter(ExprPtr subject);  // after the |
  ExprPtr parse_test(ExprPtr subject);
  ExprPtr parse_binary(ExprPtr left, Binary op, ExprPtr right, int line);
  std::string parse_dotted_name();

  const Token& current() const { return tokens_[at_]; }
  const Token& following() const { return tokens_[std::min(at_ + 1, tokens_.size() - 1)]; }
  Token take() { return at_ + 1 < tokens_.size() ? tokens_[at_++] : tokens_[at_]; }
  bool skip_op(std::string_view sign);
  bool skip_name(std::string_view word);
  Token expect(Token::Type type);
  void expect_op(std::string_view sign);
  void expect_name(std::string_view word);
  [[noreturn]] void fail_here(const std::string& message) const;
  [[noreturn]] void fail_expected(std::string_view what) const;

  // A node on its line; refuses trees too deep to walk.
  template <class T>
  std::unique_ptr<T> finish(std::unique_ptr<T> node, int line) {
    node->line = line;
    node->each_child([&](Node& child) { node->depth = std::max(node->depth, child.depth + 1); });
    if (node->depth > kMaxDepth) fail_depth();
    return node;
  }
  [[noreturn]] void fail_depth() const;

  static constexpr int kMaxDepth = 250;

  // Counts how deep the parser itself is nested.
  struct Nested {
    explicit Nested(Parser& p) : parser(p) {
      if (++parser.nesting_ > kMaxDepth) parser.fail_depth();
    }
    ~Nested() { --parser.nesting_; }
    Parser& parser;
  };

  std::vector<Token> tokens_;
  std::size_t at_ = 0;
  int nesting_ = 0;
  std::vector<std::string> open_tags_;
  std::vector<Words> end_tags_;
};

}  // namespace quire::jinja
