"""Arrays of NumPy and other libraries as tensors of libattn, without copying their elements."""

from __future__ import annotations

import ctypes
import struct
from typing import Any, NamedTuple

import numpy as np

NUMPY_TYPES = {np.dtype(name): name for name in (
    "float64", "float32", "float16", "int8", "int16", "int32", "int64", "uint8", "uint16", "uint32",
    "uint64", "bool")}
NUMPY_TYPE_OF = {name: dtype for dtype, name in NUMPY_TYPES.items()}

_first_byte: Any = ctypes.c_char.from_buffer
_address = ctypes.addressof


class Tensor(NamedTuple):
    """The fields of attn_tensor for one array."""
    name: str
    dtype: str
    shape: tuple[int, ...]
    strides: tuple[int, ...] | None  # in bytes; None: contiguous
    address: int
    owner: Any  # keeps the elements alive


def is_array(value: Any) -> bool:
    """Whether a value is passed on as a tensor. Everything else, also an array of strings, is passed on as JSON."""
    if type(value) is np.ndarray:
        return value.dtype.kind not in "UO"
    if isinstance(value, (str, bytes, int, float, list, tuple, dict, np.generic)) or value is None:
        return False
    if hasattr(value, "__dlpack__") or hasattr(value, "__array_interface__") or hasattr(value, "__array__"):
        return True
    try:
        memoryview(value)
    except TypeError:
        return False
    return True


def tensor_of(name: str, array: Any) -> Tensor:
    """The tensor of an array, without its history of gradients. Its elements stay where they are. Raises
    BufferError for arrays that are not in the memory of the CPU."""
    if isinstance(array, np.ndarray):
        return _of_numpy(name, array)
    if hasattr(array, "__dlpack_device__"):
        if getattr(array, "requires_grad", False):
            array = array.detach()
        if getattr(array, "is_neg", bool)():
            array = array.resolve_neg()  # a view of PyTorch with the other sign, which DLPack does not express
        _require_cpu(name, array)
        return _of_dlpack(name, array)
    if hasattr(array, "__cuda_array_interface__"):
        raise _elsewhere(name, "a CUDA device")
    return _of_numpy(name, np.asarray(array))


def _of_numpy(name: str, array: np.ndarray[Any, Any]) -> Tensor:
    if isinstance(array, np.ma.MaskedArray):
        raise TypeError(f"{name}: masked arrays are not supported; use .filled() and give the mask as mask=")
    flags = array.flags
    dtype = NUMPY_TYPES.get(array.dtype)
    if dtype is not None and flags.c_contiguous and flags.writeable and array.size:
        # The address of the buffer, in a third of the time of array.ctypes.data.
        return Tensor(name, dtype, array.shape, None, _address(_first_byte(array)), array)
    if dtype is None:
        # "bfloat16" is that of ml_dtypes; libattn refuses unknown ones.
        dtype = ("" if array.dtype.isnative else array.dtype.byteorder) + array.dtype.name
    strides = None if array.flags.c_contiguous else array.strides
    return Tensor(name, dtype, array.shape, strides, array.ctypes.data, array)


# DLPack: https://dmlc.github.io/dlpack/latest/c_api.html

class _DLTensor(ctypes.Structure):
    _fields_ = [("data", ctypes.c_void_p), ("device_type", ctypes.c_int32), ("device_id", ctypes.c_int32),
                ("ndim", ctypes.c_int32), ("code", ctypes.c_uint8), ("bits", ctypes.c_uint8),
                ("lanes", ctypes.c_uint16), ("shape", ctypes.POINTER(ctypes.c_int64)),
                ("strides", ctypes.POINTER(ctypes.c_int64)), ("byte_offset", ctypes.c_uint64)]


_CODES = {0: "int", 1: "uint", 2: "float", 4: "bfloat", 6: "bool"}
_CODES_OF_8_BITS = {10: "float8_e4m3fn", 11: "float8_e4m3fnuz", 12: "float8_e5m2", 13: "float8_e5m2fnuz",
                    14: "float8_e8m0fnu"}
_CPU_MEMORY = (1, 3)  # kDLCPU and kDLCUDAHost, which is pinned memory
_DEVICES = {2: "CUDA device", 4: "OpenCL device", 7: "Vulkan device", 8: "Metal device", 10: "ROCm device",
            13: "managed memory of CUDA device", 14: "oneAPI device"}

_pointer_of = ctypes.pythonapi.PyCapsule_GetPointer
_pointer_of.restype, _pointer_of.argtypes = ctypes.c_void_p, [ctypes.py_object, ctypes.c_char_p]


def _elsewhere(name: str, where: str) -> BufferError:
    return BufferError(f"{name}: expected an array in the memory of the CPU, found one on {where}; copy it "
                       "first: x.cpu() in PyTorch, jax.device_get(x) in JAX, x.get() in CuPy")


def _require_cpu(name: str, array: Any) -> None:
    kind, number = array.__dlpack_device__()
    if kind not in _CPU_MEMORY:
        raise _elsewhere(name, f"{_DEVICES.get(kind, f'device of DLPack type {kind},')} {number}")


def _of_dlpack(name: str, array: Any) -> Tensor:
    capsule = array.__dlpack__()  # releases the array when it is deleted
    tensor = _DLTensor.from_address(_pointer_of(capsule, b"dltensor"))
    dtype = _CODES_OF_8_BITS.get(tensor.code, "")
    if not dtype:
        dtype = _CODES.get(tensor.code, f"DLPack type {tensor.code}, ")
        if dtype != "bool":
            dtype += str(tensor.bits)
    if tensor.lanes != 1:
        dtype += f"x{tensor.lanes}"
    rank = tensor.ndim
    strides = tuple(step * tensor.bits // 8 for step in tensor.strides[:rank]) if tensor.strides else None
    address = (tensor.data or 0) + tensor.byte_offset
    return Tensor(name, dtype, tuple(tensor.shape[:rank]), strides, address, capsule)


_names: dict[str, Any] = {}  # as C strings, which are kept, with their addresses


def _address_of(name: str) -> int:
    kept = _names.get(name)
    if kept is None:
        text = ctypes.create_string_buffer(name.encode())
        kept = _names[name] = (ctypes.addressof(text), text)
    return kept[0]


# Types of ctypes take longer to make than a small job: arrays of a given length are not used below.
_TENSOR = struct.Struct("@PPNPPP")  # attn_tensor
_Header = ctypes.c_char * _TENSOR.size


class Packed(NamedTuple):
    """An array of attn_tensor at `address`, in memory of `owner`."""
    address: int
    owner: Any


def packed(tensors: list[Tensor]) -> Packed:
    """The tensors, followed by their shapes and strides."""
    lengths: list[int] = []
    for tensor in tensors:
        lengths += tensor.shape
        if tensor.strides is not None:
            lengths += tensor.strides
    size = _TENSOR.size * len(tensors)
    buffer = bytearray(size + 8 * len(lengths))
    owner = _first_byte(buffer) if buffer else ctypes.c_char()
    start = _address(owner)
    at, place = start + size, 0
    for name, dtype, shape, strides, address, _ in tensors:
        after = at + 8 * len(shape)
        _TENSOR.pack_into(buffer, place, _address_of(name), _address_of(dtype), len(shape), at,
                          0 if strides is None else after, address)
        at = after if strides is None else after + 8 * len(shape)
        place += _TENSOR.size
    struct.pack_into(f"@{len(lengths)}n", buffer, size, *lengths)
    return Packed(start, owner)


class _Memory:
    """The elements of a tensor of libattn. Frees it when the last array that uses them is deleted."""

    __slots__ = ("__array_interface__", "address", "free")
    __array_interface__: dict[str, Any]

    def __init__(self, address: int, free: Any) -> None:
        self.address, self.free = address, free

    def __del__(self) -> None:
        self.free(self.address)


_type_at: dict[int, tuple[str, str]] = {}  # the name and NumPy's code of the dtype whose name is at an address


def _type_of(address: int) -> tuple[str, str]:
    found = _type_at.get(address)
    if found is None:
        name = ctypes.string_at(address).decode()
        code = "<u2" if name == "bfloat16" else NUMPY_TYPE_OF[name].str
        found = _type_at[address] = (name, code)
    return found


def array_of(address: int, free: Any, bfloat16: np.dtype[Any] | None) -> tuple[str, np.ndarray[Any, Any]]:
    """The name and the elements of a tensor at `address`, which the array owns from now on."""
    memory = _Memory(address, free)
    name, type_name, rank, shape, _, data = _TENSOR.unpack_from(_Header.from_address(address))
    dtype, code = _type_of(type_name)
    lengths = struct.unpack(f"@{rank}N", ctypes.string_at(shape, 8 * rank))
    memory.__array_interface__ = {"data": (data, False), "shape": lengths, "typestr": code, "version": 3}
    array = np.asarray(memory)
    if dtype == "bfloat16":
        array = array.view(bfloat16) if bfloat16 is not None else _as_float32(array)
    return ctypes.string_at(name).decode(), array


def _as_float32(bits: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    """bfloat16 is the upper half of a float32."""
    return (bits.astype(np.uint32) << np.uint32(16)).view(np.float32)
