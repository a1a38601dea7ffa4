// kernels/plain/megakernel.cu
