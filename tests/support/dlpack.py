"""Arrays that support DLPack and nothing else, as those of other libraries."""

import ctypes

import numpy as np

CODES = {"int": 0, "uint": 1, "float": 2, "bfloat": 4, "bool": 6,
         "float8_e4m3fn": 10, "float8_e5m2": 12, "float8_e8m0fnu": 14}
CPU, CUDA = 1, 2


class Managed(ctypes.Structure):
    """DLManagedTensor: the tensor, and what releases it."""
    _fields_ = [("data", ctypes.c_void_p), ("device_type", ctypes.c_int32), ("device_id", ctypes.c_int32),
                ("ndim", ctypes.c_int32), ("code", ctypes.c_uint8), ("bits", ctypes.c_uint8),
                ("lanes", ctypes.c_uint16), ("shape", ctypes.POINTER(ctypes.c_int64)),
                ("strides", ctypes.POINTER(ctypes.c_int64)), ("byte_offset", ctypes.c_uint64),
                ("context", ctypes.c_void_p), ("deleter", ctypes.c_void_p)]


new_capsule = ctypes.pythonapi.PyCapsule_New
new_capsule.restype, new_capsule.argtypes = ctypes.py_object, [ctypes.c_void_p, ctypes.c_char_p, ctypes.c_void_p]


class DLPackArray:
    """The elements of a NumPy array. `kind` is a key of CODES; `offset` is that of the first element in bytes."""

    def __init__(self, array, kind=None, device=CPU, offset=0):
        self.array, self.device = array, device
        kind = kind or {"i": "int", "u": "uint", "f": "float", "b": "bool"}[array.dtype.kind]
        size = array.dtype.itemsize
        self.shape = (ctypes.c_int64 * array.ndim)(*array.shape)
        self.strides = (ctypes.c_int64 * array.ndim)(*(step // size for step in array.strides))
        self.managed = Managed(array.ctypes.data - offset, device, 0, array.ndim, CODES[kind], 8 * size, 1,
                               self.shape, self.strides, offset, None, None)

    def __dlpack_device__(self):
        return self.device, 0

    def __dlpack__(self, **_):
        assert self.device == CPU, "only its device may be asked for"
        return new_capsule(ctypes.addressof(self.managed), b"dltensor", None)


def bfloat16(array):
    """The values of an array, which bfloat16 must represent exactly, as bfloat16."""
    bits = (np.asarray(array, np.float32).view(np.uint32) >> 16).astype(np.uint16)
    assert ((bits.astype(np.uint32) << 16).view(np.float32) == array).all()
    return DLPackArray(bits, "bfloat")
