// baselines/eager.cpp
