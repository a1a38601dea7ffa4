// references/config.cpp
