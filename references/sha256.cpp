// references/sha256.cpp
