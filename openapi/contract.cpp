#include "openapi/contract.h"

// The assembler puts the file in; CMakeLists.txt tells it where it is.
__asm__(
    ".section .rodata\n"
    "quire_contract_begin:\n.incbin \"openapi.json\"\n"
    "quire_contract_end:\n.byte 0\n.previous\n");
extern "C" const char quire_contract_begin[], quire_contract_end[];

namespace quire::openapi {

std::string_view contract_json() { return {quire_contract_begin, quire_contract_end}; }

}  // namespace quire::openapi
