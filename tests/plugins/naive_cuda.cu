#include "references/engine_abi.h"
