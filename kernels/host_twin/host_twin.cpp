// kernels/host_twin/host_twin.cpp
