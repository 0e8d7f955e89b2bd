#pragma once
// The grammar engine behind the seam of token_constraint.h.

#include <memory>

#include "engine/structured/token_constraint.h"

namespace quire {
class Tokenizer;
}

namespace quire::structured {

// Compiles constraints for the model with this tokenizer, whose tokens it reads on the first call;
// what is alike in their masks is found once for all of them. May be called on several threads.
CompileConstraint grammar_compiler(std::shared_ptr<const Tokenizer> tokenizer);

}  // namespace quire::structured
