#include <cuda_runtime_api.h>
#include <fmt/format.h>

#include <array>

#include "harness/device/device_info.h"

namespace mkbench {
namespace {

std::string uuid_text(const cudaUUID_t& uuid) {
  std::string text = "GPU-";
  for (int i = 0; i < 16; ++i) {
    if (i == 4 || i == 6 || i == 8 || i == 10) text += '-';
    text += fmt::format("{:02x}", static_cast<unsigned char>(uuid.bytes[i]));
  }
  return text;
}

// Returns false and leaves `device` unchanged if the GPU does not answer.
bool read_device(int index, DeviceInfo& device) {
  cudaDeviceProp properties{};
  if (cudaGetDeviceProperties(&properties, index) != cudaSuccess) return false;
  device.index = index;
  device.name = properties.name;
  device.uuid = uuid_text(properties.uuid);
  device.sm_major = properties.major;
  device.sm_minor = properties.minor;
  device.sm_count = properties.multiProcessorCount;
  device.l2_bytes = properties.l2CacheSize;
  // Two attributes, because CUDA 13 has removed these fields from cudaDeviceProp.
  int memory_clock_khz = 0, bus_width_bits = 0;
  if (cudaDeviceGetAttribute(&memory_clock_khz, cudaDevAttrMemoryClockRate, index) == cudaSuccess &&
      cudaDeviceGetAttribute(&bus_width_bits, cudaDevAttrGlobalMemoryBusWidth, index) ==
          cudaSuccess)
    device.pin_gb_per_s = pin_rate(memory_clock_khz, bus_width_bits);
  device.total_bytes = static_cast<int64_t>(properties.totalGlobalMem);
  int mode = 0;
  if (cudaDeviceGetAttribute(&mode, cudaDevAttrComputeMode, index) == cudaSuccess)
    device.exclusive = mode == cudaComputeModeExclusiveProcess;
  std::array<char, 32> bus{};
  if (cudaDeviceGetPCIBusId(bus.data(), static_cast<int>(bus.size()), index) == cudaSuccess) {
    device.pci_bus_id = bus.data();
    device.state = read_gpu_state(device.pci_bus_id);
  }
  // NVML reports the memory of the whole card. The memory of a MIG slice, and any memory where NVML
  // is missing, can be read through a CUDA context only.
  const bool whole_card = device.state.free_bytes && !device.state.mig.value_or(false);
  if (whole_card) {
    device.free_bytes = *device.state.free_bytes;
  } else {
    size_t free = 0, total = 0;
    if (cudaSetDevice(index) == cudaSuccess && cudaMemGetInfo(&free, &total) == cudaSuccess) {
      device.free_bytes = static_cast<int64_t>(free);
    }
  }
  return true;
}

}  // namespace

DeviceList list_devices() {
  DeviceList list;
  if (cudaDriverGetVersion(&list.driver_cuda_version) != cudaSuccess) list.driver_cuda_version = 0;
  if (cudaRuntimeGetVersion(&list.runtime_cuda_version) != cudaSuccess) {
    list.runtime_cuda_version = CUDART_VERSION;
  }
  list.driver_version = driver_version();
  int count = 0;
  const cudaError_t status = cudaGetDeviceCount(&count);
  if (status != cudaSuccess) {
    list.error = cudaGetErrorString(status);
    cudaGetLastError();  // clears the error, which a later call would report as its own
    return list;
  }
  for (int i = 0; i < count; ++i) {
    DeviceInfo device;
    if (read_device(i, device)) list.devices.push_back(device);
  }
  return list;
}

}  // namespace mkbench
