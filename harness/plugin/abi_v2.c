/* The sizes of version 2, from its own header: in C, because a C++ program must not define one type
 * in two ways. */
#include "references/engine_abi_v2.h"

extern const mkbench_abi_sizes mkbench_abi_v2_sizes;
const mkbench_abi_sizes mkbench_abi_v2_sizes = MKBENCH_ABI_SIZES;
