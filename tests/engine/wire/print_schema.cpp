// Prints messages.proto.

#include <cstdio>

#include "tests/engine/wire/schema_text.h"

int main() { return std::fputs(quire::test::schema_text().c_str(), stdout) < 0; }
