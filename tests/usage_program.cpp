// mkbench without engines: no worker can be started, and neither libtorch nor CUDA is loaded.
#include "harness/parent/parent_main.h"

int main(int argc, char** argv) { return mkbench::parent_main({argv, argv + argc}, nullptr); }
