// A decoder with bugs (bugs.inc) on the CPU.
#include "tests/plugins/buggy_engine.h"
