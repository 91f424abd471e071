"""The part of XLA's `hlo.proto` that we read or write, as protobuf message classes.

Field numbers are the wire contract, taken from XLA's own `xla/service/hlo.proto` and
`xla/xla_data.proto`. Fields that are not listed here survive a round trip as unknown fields, so a newer
XLA loses nothing. The messages live in a descriptor pool and a package of our own: nothing clashes with
another library that registers XLA's protos, and no generated code ties us to one protobuf release.
"""

from __future__ import annotations

from google.protobuf import descriptor_pb2, descriptor_pool, message_factory

_PACKAGE = "hlo_dispatch.wire"

# message -> field -> (number, type); "[]" marks a repeated field.
_MESSAGES: dict[str, dict[str, tuple[int, str]]] = {
    "Layout": {
        "minor_to_major": (1, "int64[]"),
        "tiles": (6, "bytes[]"),
        "element_size_in_bits": (7, "int64"),
        "tail_padding_alignment_in_elements": (16, "int64"),
    },
    "Shape": {
        "element_type": (2, "int32"),
        "dimensions": (3, "int64[]"),
        "tuple_shapes": (4, "Shape[]"),
        "layout": (5, "Layout"),
        "is_dynamic_dimension": (6, "bool[]"),
    },
    "Literal": {
        "shape": (1, "Shape"),
        "preds": (2, "bool[]"),
        "u8s": (3, "bytes"),
        "s32s": (4, "int32[]"),
        "s64s": (5, "int64[]"),
        "u32s": (6, "uint32[]"),
        "u64s": (7, "uint64[]"),
        "f32s": (8, "float[]"),
        "f64s": (9, "double[]"),
        "f16s": (11, "bytes"),
        "bf16s": (13, "bytes"),
        "s8s": (15, "bytes"),
    },
    "WindowDimension": {
        "size": (1, "int64"),
        "stride": (2, "int64"),
        "padding_low": (3, "int64"),
        "padding_high": (4, "int64"),
        "window_dilation": (5, "int64"),
        "base_dilation": (6, "int64"),
        "window_reversal": (7, "bool"),
    },
    "Window": {"dimensions": (1, "WindowDimension[]")},
    "ConvolutionDimensionNumbers": {
        "kernel_input_feature_dimension": (3, "int64"),
        "kernel_output_feature_dimension": (4, "int64"),
        "kernel_spatial_dimensions": (6, "int64[]"),
        "input_batch_dimension": (7, "int64"),
        "input_feature_dimension": (8, "int64"),
        "output_batch_dimension": (9, "int64"),
        "output_feature_dimension": (10, "int64"),
        "input_spatial_dimensions": (11, "int64[]"),
        "output_spatial_dimensions": (12, "int64[]"),
    },
    "PaddingDimension": {
        "edge_padding_low": (1, "int64"),
        "edge_padding_high": (2, "int64"),
        "interior_padding": (3, "int64"),
    },
    "PaddingConfig": {"dimensions": (1, "PaddingDimension[]")},
    "DotDimensionNumbers": {
        "lhs_contracting_dimensions": (1, "int64[]"),
        "rhs_contracting_dimensions": (2, "int64[]"),
        "lhs_batch_dimensions": (3, "int64[]"),
        "rhs_batch_dimensions": (4, "int64[]"),
    },
    "GatherDimensionNumbers": {
        "offset_dims": (1, "int64[]"),
        "collapsed_slice_dims": (2, "int64[]"),
        "start_index_map": (3, "int64[]"),
        "index_vector_dim": (4, "int64"),
        "operand_batching_dims": (5, "int64[]"),
    },
    "ScatterDimensionNumbers": {
        "update_window_dims": (1, "int64[]"),
        "inserted_window_dims": (2, "int64[]"),
        "scatter_dims_to_operand_dims": (3, "int64[]"),
        "index_vector_dim": (4, "int64"),
        "input_batching_dims": (5, "int64[]"),
    },
    "SliceDimensions": {"start": (1, "int64"), "limit": (2, "int64"), "stride": (3, "int64")},
    "PrecisionConfig": {"operand_precision": (1, "int32[]"), "algorithm": (2, "int32")},
    "OpMetadata": {
        "op_type": (1, "string"),
        "op_name": (2, "string"),
        "source_file": (3, "string"),
        "source_line": (4, "int32"),
        "stack_frame_id": (15, "int32"),
    },
    # XLA's own field is a map<string, string>; on the wire that is a repeated entry message.
    "FrontendAttribute": {"key": (1, "string"), "value": (2, "string")},
    "FrontendAttributes": {"map": (1, "FrontendAttribute[]")},
    "Instruction": {
        "name": (1, "string"),
        "opcode": (2, "string"),
        "shape": (3, "Shape"),
        "metadata": (7, "OpMetadata"),
        "literal": (8, "Literal"),
        "parameter_number": (9, "int64"),
        "fusion_kind": (11, "string"),
        "tuple_index": (13, "int64"),
        "dimensions": (14, "int64[]"),
        "window": (15, "Window"),
        "convolution_dimension_numbers": (16, "ConvolutionDimensionNumbers"),
        "slice_dimensions": (17, "SliceDimensions[]"),
        "dynamic_slice_sizes": (20, "int64[]"),
        "padding_config": (21, "PaddingConfig"),
        "custom_call_target": (28, "string"),
        "fft_type": (31, "int32"),
        "fft_length": (32, "int64[]"),
        "dot_dimension_numbers": (30, "DotDimensionNumbers"),
        "gather_dimension_numbers": (33, "GatherDimensionNumbers"),
        "gather_slice_sizes": (34, "int64[]"),
        "id": (35, "int64"),
        "operand_ids": (36, "int64[]"),
        "control_predecessor_ids": (37, "int64[]"),
        "called_computation_ids": (38, "int64[]"),
        "backend_config": (43, "bytes"),
        "scatter_dimension_numbers": (48, "ScatterDimensionNumbers"),
        "feature_group_count": (50, "int64"),
        "precision_config": (51, "PrecisionConfig"),
        "batch_group_count": (58, "int64"),
        "is_stable": (60, "bool"),
        "comparison_direction": (63, "string"),
        "frontend_attributes": (68, "FrontendAttributes"),
        "output_operand_aliasing": (74, "bytes[]"),
        "custom_call_has_side_effect": (65, "bool"),
        "custom_call_api_version": (77, "int32"),
    },
    "Computation": {
        "name": (1, "string"),
        "instructions": (2, "Instruction[]"),
        "program_shape": (4, "ProgramShape"),
        "id": (5, "int64"),
        "root_id": (6, "int64"),
        "is_fusion_computation": (7, "bool"),
        "execution_thread": (8, "string"),
    },
    "ProgramShape": {"parameters": (1, "Shape[]"), "result": (2, "Shape"), "parameter_names": (3, "string[]")},
    "FileLocation": {
        "file_name_id": (1, "int32"),
        "function_name_id": (2, "int32"),
        "line": (3, "int32"),
    },
    "StackFrame": {"file_location_id": (1, "int32"), "parent_frame_id": (2, "int32")},
    "StackFrameIndex": {
        "file_names": (1, "string[]"),
        "function_names": (2, "string[]"),
        "file_locations": (3, "FileLocation[]"),
        "stack_frames": (4, "StackFrame[]"),
    },
    "AliasEntry": {
        "output_shape_index": (1, "int64[]"),
        "parameter_number": (2, "int64"),
        "parameter_shape_index": (3, "int64[]"),
    },
    "InputOutputAlias": {"entries": (1, "AliasEntry[]")},
    "BufferDonorEntry": {"parameter_number": (1, "int64"), "parameter_shape_index": (2, "int64[]")},
    "BufferDonor": {"entries": (1, "BufferDonorEntry[]")},
    "CrossProgramPrefetch": {"parameter": (1, "int64"), "index": (2, "int64[]"), "offset": (3, "int64")},
    "ComputationDevice": {"replica_device_ids": (1, "int64[]")},
    "DeviceAssignment": {"computation_devices": (3, "ComputationDevice[]")},
    "Module": {
        "name": (1, "string"),
        "entry_computation_name": (2, "string"),
        "computations": (3, "Computation[]"),
        "host_program_shape": (4, "ProgramShape"),
        "id": (5, "int64"),
        "entry_computation_id": (6, "int64"),
        "schedule": (7, "bytes"),
        "input_output_alias": (8, "InputOutputAlias"),
        "cross_program_prefetches": (10, "CrossProgramPrefetch[]"),
        "spmd_parameters_shardings": (14, "bytes[]"),
        "device_assignment": (15, "DeviceAssignment"),
        "stack_frame_index": (17, "StackFrameIndex"),
        "buffer_donor": (18, "BufferDonor"),
    },
}


def _build() -> dict[str, type]:
    kinds = descriptor_pb2.FieldDescriptorProto
    scalars = {
        "int32": kinds.TYPE_INT32,
        "int64": kinds.TYPE_INT64,
        "uint32": kinds.TYPE_UINT32,
        "uint64": kinds.TYPE_UINT64,
        "bool": kinds.TYPE_BOOL,
        "float": kinds.TYPE_FLOAT,
        "double": kinds.TYPE_DOUBLE,
        "string": kinds.TYPE_STRING,
        "bytes": kinds.TYPE_BYTES,
    }
    file = descriptor_pb2.FileDescriptorProto(name="hlo_dispatch/wire.proto", package=_PACKAGE, syntax="proto3")
    for message_name, fields in _MESSAGES.items():
        message = file.message_type.add(name=message_name)
        for field_name, (number, kind) in fields.items():
            repeated = kind.endswith("[]")
            kind = kind.removesuffix("[]")
            field = message.field.add(name=field_name, number=number)
            field.label = kinds.LABEL_REPEATED if repeated else kinds.LABEL_OPTIONAL
            if kind in scalars:
                field.type = scalars[kind]
            else:
                field.type, field.type_name = kinds.TYPE_MESSAGE, f".{_PACKAGE}.{kind}"
    pool = descriptor_pool.DescriptorPool()
    pool.Add(file)
    return {
        name: message_factory.GetMessageClass(pool.FindMessageTypeByName(f"{_PACKAGE}.{name}")) for name in _MESSAGES
    }


_CLASSES = _build()
ModuleProto = _CLASSES["Module"]
ComputationProto = _CLASSES["Computation"]
InstructionProto = _CLASSES["Instruction"]
ShapeProto = _CLASSES["Shape"]
LiteralProto = _CLASSES["Literal"]
WindowDimensionProto = _CLASSES["WindowDimension"]
DotDimensionNumbersProto = _CLASSES["DotDimensionNumbers"]
ProgramShapeProto = _CLASSES["ProgramShape"]
OpMetadataProto = _CLASSES["OpMetadata"]
StackFrameIndexProto = _CLASSES["StackFrameIndex"]

MODULE_FIELDS: dict[str, int] = {name: number for name, (number, _) in _MESSAGES["Module"].items()}
INSTRUCTION_FIELDS: dict[str, int] = {name: number for name, (number, _) in _MESSAGES["Instruction"].items()}
"""Name of an instruction's field → its number."""

# xla_data.proto PrimitiveType, the ones that have a name in HLO text.
ELEMENT_TYPES: dict[int, str] = {
    1: "pred", 2: "s8", 3: "s16", 4: "s32", 5: "s64", 6: "u8", 7: "u16", 8: "u32", 9: "u64",
    10: "f16", 11: "f32", 12: "f64", 13: "tuple", 14: "opaque", 15: "c64", 16: "bf16", 17: "token",
    18: "c128", 19: "f8e5m2", 20: "f8e4m3fn", 21: "s4", 22: "u4",
}  # fmt: skip
ELEMENT_TYPE_NUMBERS: dict[str, int] = {name: number for number, name in ELEMENT_TYPES.items()}
BYTES_PER_ELEMENT: dict[str, int] = {
    "pred": 1, "s8": 1, "u8": 1, "s16": 2, "u16": 2, "f16": 2, "bf16": 2, "s32": 4, "u32": 4, "f32": 4,
    "s64": 8, "u64": 8, "f64": 8, "c64": 8, "c128": 16, "f8e5m2": 1, "f8e4m3fn": 1, "s4": 1, "u4": 1,
}  # fmt: skip
CUSTOM_CALL_API_TYPED_FFI = 4
