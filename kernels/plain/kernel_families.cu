// A device translation unit: the instances of the plain megakernel for layers that are not Qwen3's.
#include "kernels/plain/instances/table.cuh"

namespace mkbench::plain {

using Families = Instances<kLayerShapes.qwen3_count, kLayerShapes.count>;
template struct Instances<kLayerShapes.qwen3_count, kLayerShapes.count>;

Instance family_instance(int index) { return Families::kAll[index - kLayerShapes.qwen3_count]; }

}  // namespace mkbench::plain
