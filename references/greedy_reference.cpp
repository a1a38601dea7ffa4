// references/greedy_reference.cpp
