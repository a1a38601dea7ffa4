// references/safetensors.cpp
