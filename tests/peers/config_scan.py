"""The keys of config.json that the installed transformers reads for a model, from its source.

A key is any attribute of a configuration that code reachable from the model's class reads, including the shared code
of masks and rotary positions, any field of the class of its configuration, and any key that this class takes from
config.json without a field for it. "rope_parameters.factor" is the key factor of the object rope_parameters.
"""

import ast
import dataclasses
import functools
import importlib
import inspect

import transformers
from transformers.modeling_rope_utils import RotaryEmbeddingConfigMixin

FOLLOWED = ("transformers.masking_utils", "transformers.modeling_rope_utils", "transformers.models.")
OBJECTS = {"rope_parameters", "rope_parameters_dict", "attn_config"}


@functools.cache
def definitions(name):
    """The classes, functions and constants of a module, and what it imports: {name: node}, {name: (module, name)}."""
    tree = ast.parse(inspect.getsource(importlib.import_module(name)))
    defined, imported = {}, {}
    for node in ast.walk(tree):
        if isinstance(node, ast.ImportFrom):
            parts = name.split(".")[:-node.level] if node.level else []
            source = ".".join(parts + ([node.module] if node.module else []))
            imported |= {each.asname or each.name: (source, each.name) for each in node.names}
    for node in tree.body:
        if isinstance(node, (ast.ClassDef, ast.FunctionDef)):
            defined[node.name] = node
        elif isinstance(node, (ast.Assign, ast.AnnAssign)):
            targets = node.targets if isinstance(node, ast.Assign) else [node.target]
            defined |= {target.id: node for target in targets if isinstance(target, ast.Name)}
    return defined, imported


def reachable(module, name, found):
    """Adds the definition of a name, and all that it names, to `found`."""
    defined, imported = definitions(module)
    if name in imported and name not in defined and imported[name][0].startswith(FOLLOWED):
        return reachable(*imported[name], found)
    if name not in defined or (module, name) in found:
        return
    found[module, name] = defined[name]
    for node in ast.walk(defined[name]):
        if isinstance(node, ast.Name):
            reachable(module, node.id, found)


def path_of(node):
    """["self", "config", "hidden_size"] of self.config.hidden_size; [] if it is not a chain of names."""
    parts = []
    while isinstance(node, ast.Attribute):
        parts.insert(0, node.attr)
        node = node.value
    return [node.id, *parts] if isinstance(node, ast.Name) else []


def text_of(node):
    return node.value if isinstance(node, ast.Constant) and isinstance(node.value, str) else None


def owner_of(node):
    """The object that a subscript or call of get() reads: "rope_parameters" of config.rope_parameters[layer_type]."""
    while isinstance(node, ast.Subscript):
        node = node.value
    path = path_of(node)
    return path[-1].removesuffix("_dict") if path and path[-1] in OBJECTS else None


def reads_of(tree, is_config):
    """The keys that a tree reads. `is_config` tells whether a chain of names is a configuration."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Attribute) and isinstance(node.ctx, ast.Load):
            path = path_of(node)
            start = next((n for n in range(1, len(path)) if is_config(path[:n])), None)
            if start is not None:
                key = path[start:]
                yield ".".join(key[:2] if key[0] in OBJECTS and key[-1] not in ("get", "setdefault") else key[:1])
        elif isinstance(node, ast.Subscript) and text_of(node.slice) and owner_of(node.value):
            yield f"{owner_of(node.value)}.{text_of(node.slice)}"
        elif isinstance(node, ast.Call):
            yield from called_reads(node, is_config)


def called_reads(call, is_config):
    """The keys in getattr(config, "key"), rope_parameters.get("key") and, in a configuration, kwargs.pop("key")."""
    key = next((text_of(each) for each in call.args if text_of(each)), None)
    if key is None:
        return
    if isinstance(call.func, ast.Name) and call.func.id in ("getattr", "hasattr") and is_config(path_of(call.args[0])):
        yield key
    elif isinstance(call.func, ast.Attribute) and call.func.attr in ("get", "pop", "setdefault"):
        if path_of(call.func.value) == ["kwargs"] and is_config(["self"]):
            yield key
        elif owner_of(call.func.value):
            yield f"{owner_of(call.func.value)}.{key}"


def settable(config_class, key):
    """Whether config.json can set the attribute: not a method, a constant or a property without setter."""
    name = key.split(".")[0]
    if name.startswith("_"):
        return False
    if name in {field.name for field in dataclasses.fields(config_class)} or not hasattr(config_class, name):
        return True
    value = inspect.getattr_static(config_class, name)
    return isinstance(value, property) and value.fset is not None


def keys_of(model_type):
    """All keys for a model_type, sorted."""
    config_class = transformers.CONFIG_MAPPING[model_type]
    model_class = transformers.AutoModel._model_mapping[config_class]
    found, keys = {}, set()
    reachable(model_class.__module__, model_class.__name__, found)
    for node in found.values():
        keys.update(reads_of(node, lambda path: path[-1:] == ["config"]))
    classes = [config_class]
    if hasattr(config_class, "rope_parameters"):
        classes.append(RotaryEmbeddingConfigMixin)
    for each in classes:
        tree = definitions(each.__module__)[0][each.__name__]
        keys.update(reads_of(tree, lambda path: path == ["self"]))
    keys.update(field.name for field in dataclasses.fields(config_class))
    keys.update(config_class.attribute_map)
    for name in OBJECTS & keys:
        value = getattr(config_class(), name)
        if dataclasses.is_dataclass(value):
            common = {field.name for field in dataclasses.fields(transformers.PreTrainedConfig)}
            keys.update(f"{name}.{field.name}" for field in dataclasses.fields(value) if field.name not in common)
    return sorted(key for key in keys if settable(config_class, key))
