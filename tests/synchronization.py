"""Proof without a GPU that code never waits for one: it runs on PyTorch's `meta` device, whose tensors have no values.

Whatever needs a value (`item`, `tolist`, `bool`, `nonzero`, a boolean index, a copy to the host) is an error there, and
takes the branches of the code that are for devices other than the CPU. Blocking copies to the device are found by
`NoSynchronization`.
"""

from collections.abc import Iterator
from contextlib import contextmanager, nullcontext

import pytest
import torch
from torch import Tensor
from torch.overrides import TorchFunctionMode
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

META = torch.device("meta")
# reads the lengths of packed sequences, which PyTorch wants on the host on every device
_READS_HOST_TENSORS = {"aten::_pack_padded_sequence", "aten::_pad_packed_sequence", "aten::_cudnn_rnn"}


def _crosses(tensors: list[Tensor]) -> bool:
    """Return whether tensors of host and device meet; numbers on the host (no dimension) cost nothing."""
    return any(t.device == META for t in tensors) and any(t.device != META and t.dim() for t in tensors)


class NoSynchronization(TorchDispatchMode):
    """Raises an error at operations that copy from host to device and wait for it."""

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        kwargs = kwargs or {}
        name = func._schema.name
        tensors = [leaf for leaf in tree_leaves((args, kwargs)) if isinstance(leaf, Tensor)]
        out = func(*args, **kwargs)
        if name == "aten::_to_copy":
            waits = _crosses([*tensors, out]) and not kwargs.get("non_blocking")
        elif name == "aten::copy_":
            waits = _crosses(tensors) and not (kwargs.get("non_blocking") or args[2:] == (True,))
        else:
            waits = _crosses(tensors) and name not in _READS_HOST_TENSORS
        if waits:
            raise RuntimeError(f"{name} copies a tensor from the host and waits for it")
        return out


class NoLists(TorchFunctionMode):
    """Raises an error where Python numbers become a tensor on the device, which the dispatcher does not see."""

    def __torch_function__(self, func, types, args=(), kwargs=None):
        kwargs = kwargs or {}
        on_device = kwargs.get("device") is not None and torch.device(kwargs["device"]) == META
        is_new = func in (torch.tensor, torch.as_tensor) and on_device and not isinstance(args[0], Tensor)
        if is_new or (func is Tensor.new_tensor and args[0].device == META):
            raise RuntimeError(f"{func.__name__} copies numbers from the host and waits for them")
        return func(*args, **kwargs)


@contextmanager
def no_synchronization() -> Iterator[None]:
    """Raise an error where code on the `meta` device would wait for a GPU.

    Gradients are computed inside of the context as well. The `meta` device has no autocast, so it does nothing.
    """
    autocast = torch.autocast

    def without_meta(device_type, *args, **kwargs):
        return nullcontext() if device_type == "meta" else autocast(device_type, *args, **kwargs)

    with pytest.MonkeyPatch.context() as patch, NoSynchronization(), NoLists():
        patch.setattr(torch, "autocast", without_meta)
        patch.setattr(torch, "is_autocast_enabled", lambda *device: False)
        yield
