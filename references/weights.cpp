// references/weights.cpp
