"""A model whose layers stay in the host's memory: each comes to a device before its forward pass and leaves after it.

So the truth of transformers, four bytes a parameter, fits beside the engines that it judges. Its bits do not change.
"""

import itertools
import json
import math
import pathlib
import weakref

import torch


def unfit(text):
    error = RuntimeError(text)
    error.mkbench_kind = "env_unfit"
    return error


def parameters_in(file):
    """The number of values in a safetensors file."""
    with open(file, "rb") as data:
        header = json.loads(data.read(int.from_bytes(data.read(8), "little")))
    return sum(math.prod(tensor["shape"]) for name, tensor in header.items() if name != "__metadata__")


def require_memory(folder):
    """Raises where the host lacks the memory for the model in fp32, before it is loaded."""
    needed = 4 * sum(map(parameters_in, pathlib.Path(folder).glob("*.safetensors")))
    free = 1024 * int(pathlib.Path("/proc/meminfo").read_text("ascii").partition("MemAvailable:")[2].split()[0])
    if needed > free:
        raise unfit(f"memory of the host: {needed / 1e6:.0f} MB needed for the truth's layers, which do not fit on the card, "
                    f"{free / 1e6:.0f} MB free")


def tensors_of(module):
    return itertools.chain(module.parameters(), module.buffers())


def keep_on_host(model, layers, device):
    """Moves all of a model, in the host's memory, to the device but the parameters of `layers`. Raises for a class whose
    layers are not known."""
    if not len(layers):
        raise unfit(f"{type(model).__name__}: its layers are not known, so they cannot stay in the host's memory: a card with "
                    "more memory is needed")
    held = {id(parameter) for layer in layers for parameter in layer.parameters()}
    for tensor in tensors_of(model):
        if id(tensor) not in held:
            tensor.data = tensor.data.to(device)
    for layer in layers:
        visit(layer, device)


def lock(tensors):
    """Keeps tensors in their place in the host's memory, from which a card reads eight times as fast; those that were
    locked. The others are copied as correctly."""
    cudart, locked = torch.cuda.cudart(), []
    for tensor in tensors:
        if cudart.cudaHostRegister(tensor.data_ptr(), tensor.nbytes, 0) == cudart.cudaError.success:
            locked.append(tensor)
            continue
        try:
            torch.zeros(1, device="cuda")  # or the next kernel would raise what was refused here
        except RuntimeError:
            pass
    return locked


def unlock(tensors):
    """Before their memory is freed: the card would go on to read the old pages of a locked place."""
    for tensor in tensors:
        torch.cuda.cudart().cudaHostUnregister(tensor.data_ptr())


def visit(layer, device):
    """The parameters are on the device in forward() alone."""
    kept = [(parameter, parameter.data) for parameter in layer.parameters()]
    if device.type == "cuda":
        weakref.finalize(layer, unlock, lock([on_host for _, on_host in kept]))

    def enter(_layer, _inputs):
        for parameter, on_host in kept:
            parameter.data = on_host.to(device, non_blocking=True, copy=True)

    def leave(_layer, _inputs, _output):
        for parameter, on_host in kept:
            parameter.data = on_host

    layer.register_forward_pre_hook(enter)
    layer.register_forward_hook(leave, always_call=True)
