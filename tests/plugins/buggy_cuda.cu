// A decoder with bugs (bugs.inc) on the GPU.
#include "tests/plugins/buggy_engine.h"
