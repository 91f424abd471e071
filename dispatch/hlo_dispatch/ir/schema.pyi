"""The message classes that schema.py builds when it is imported, as type checkers are to see them.

Written by hand because no generated code exists to read them from; tests/unit/test_schema_stub.py compares the
fields of each with schema.py's. A message's class is named after it with Proto behind; only those that the package
makes itself exist in schema.py under that name. Final is what protobuf does not let anybody assign to: messages and
repeated fields.
"""

from collections.abc import Iterable
from typing import Final

from google.protobuf.internal.containers import RepeatedCompositeFieldContainer, RepeatedScalarFieldContainer
from google.protobuf.message import Message

class LayoutProto(Message):
    element_size_in_bits: int
    tail_padding_alignment_in_elements: int
    minor_to_major: Final[RepeatedScalarFieldContainer[int]]
    tiles: Final[RepeatedScalarFieldContainer[bytes]]
    def __init__(
        self,
        *,
        minor_to_major: Iterable[int] = ...,
        tiles: Iterable[bytes] = ...,
        element_size_in_bits: int = ...,
        tail_padding_alignment_in_elements: int = ...,
    ) -> None: ...

class ShapeProto(Message):
    element_type: int
    dimensions: Final[RepeatedScalarFieldContainer[int]]
    tuple_shapes: Final[RepeatedCompositeFieldContainer[ShapeProto]]
    layout: Final[LayoutProto]
    is_dynamic_dimension: Final[RepeatedScalarFieldContainer[bool]]
    def __init__(
        self,
        *,
        element_type: int = ...,
        dimensions: Iterable[int] = ...,
        tuple_shapes: Iterable[ShapeProto] = ...,
        layout: LayoutProto | None = ...,
        is_dynamic_dimension: Iterable[bool] = ...,
    ) -> None: ...

class LiteralProto(Message):
    u8s: bytes
    f16s: bytes
    bf16s: bytes
    s8s: bytes
    shape: Final[ShapeProto]
    preds: Final[RepeatedScalarFieldContainer[bool]]
    s32s: Final[RepeatedScalarFieldContainer[int]]
    s64s: Final[RepeatedScalarFieldContainer[int]]
    u32s: Final[RepeatedScalarFieldContainer[int]]
    u64s: Final[RepeatedScalarFieldContainer[int]]
    f32s: Final[RepeatedScalarFieldContainer[float]]
    f64s: Final[RepeatedScalarFieldContainer[float]]
    def __init__(
        self,
        *,
        shape: ShapeProto | None = ...,
        preds: Iterable[bool] = ...,
        u8s: bytes = ...,
        s32s: Iterable[int] = ...,
        s64s: Iterable[int] = ...,
        u32s: Iterable[int] = ...,
        u64s: Iterable[int] = ...,
        f32s: Iterable[float] = ...,
        f64s: Iterable[float] = ...,
        f16s: bytes = ...,
        bf16s: bytes = ...,
        s8s: bytes = ...,
    ) -> None: ...

class WindowDimensionProto(Message):
    size: int
    stride: int
    padding_low: int
    padding_high: int
    window_dilation: int
    base_dilation: int
    window_reversal: bool
    def __init__(
        self,
        *,
        size: int = ...,
        stride: int = ...,
        padding_low: int = ...,
        padding_high: int = ...,
        window_dilation: int = ...,
        base_dilation: int = ...,
        window_reversal: bool = ...,
    ) -> None: ...

class WindowProto(Message):
    dimensions: Final[RepeatedCompositeFieldContainer[WindowDimensionProto]]
    def __init__(self, *, dimensions: Iterable[WindowDimensionProto] = ...) -> None: ...

class ConvolutionDimensionNumbersProto(Message):
    kernel_input_feature_dimension: int
    kernel_output_feature_dimension: int
    input_batch_dimension: int
    input_feature_dimension: int
    output_batch_dimension: int
    output_feature_dimension: int
    kernel_spatial_dimensions: Final[RepeatedScalarFieldContainer[int]]
    input_spatial_dimensions: Final[RepeatedScalarFieldContainer[int]]
    output_spatial_dimensions: Final[RepeatedScalarFieldContainer[int]]
    def __init__(
        self,
        *,
        kernel_input_feature_dimension: int = ...,
        kernel_output_feature_dimension: int = ...,
        kernel_spatial_dimensions: Iterable[int] = ...,
        input_batch_dimension: int = ...,
        input_feature_dimension: int = ...,
        output_batch_dimension: int = ...,
        output_feature_dimension: int = ...,
        input_spatial_dimensions: Iterable[int] = ...,
        output_spatial_dimensions: Iterable[int] = ...,
    ) -> None: ...

class PaddingDimensionProto(Message):
    edge_padding_low: int
    edge_padding_high: int
    interior_padding: int
    def __init__(
        self, *, edge_padding_low: int = ..., edge_padding_high: int = ..., interior_padding: int = ...
    ) -> None: ...

class PaddingConfigProto(Message):
    dimensions: Final[RepeatedCompositeFieldContainer[PaddingDimensionProto]]
    def __init__(self, *, dimensions: Iterable[PaddingDimensionProto] = ...) -> None: ...

class DotDimensionNumbersProto(Message):
    lhs_contracting_dimensions: Final[RepeatedScalarFieldContainer[int]]
    rhs_contracting_dimensions: Final[RepeatedScalarFieldContainer[int]]
    lhs_batch_dimensions: Final[RepeatedScalarFieldContainer[int]]
    rhs_batch_dimensions: Final[RepeatedScalarFieldContainer[int]]
    def __init__(
        self,
        *,
        lhs_contracting_dimensions: Iterable[int] = ...,
        rhs_contracting_dimensions: Iterable[int] = ...,
        lhs_batch_dimensions: Iterable[int] = ...,
        rhs_batch_dimensions: Iterable[int] = ...,
    ) -> None: ...

class GatherDimensionNumbersProto(Message):
    index_vector_dim: int
    offset_dims: Final[RepeatedScalarFieldContainer[int]]
    collapsed_slice_dims: Final[RepeatedScalarFieldContainer[int]]
    start_index_map: Final[RepeatedScalarFieldContainer[int]]
    operand_batching_dims: Final[RepeatedScalarFieldContainer[int]]
    def __init__(
        self,
        *,
        offset_dims: Iterable[int] = ...,
        collapsed_slice_dims: Iterable[int] = ...,
        start_index_map: Iterable[int] = ...,
        index_vector_dim: int = ...,
        operand_batching_dims: Iterable[int] = ...,
    ) -> None: ...

class ScatterDimensionNumbersProto(Message):
    index_vector_dim: int
    update_window_dims: Final[RepeatedScalarFieldContainer[int]]
    inserted_window_dims: Final[RepeatedScalarFieldContainer[int]]
    scatter_dims_to_operand_dims: Final[RepeatedScalarFieldContainer[int]]
    input_batching_dims: Final[RepeatedScalarFieldContainer[int]]
    def __init__(
        self,
        *,
        update_window_dims: Iterable[int] = ...,
        inserted_window_dims: Iterable[int] = ...,
        scatter_dims_to_operand_dims: Iterable[int] = ...,
        index_vector_dim: int = ...,
        input_batching_dims: Iterable[int] = ...,
    ) -> None: ...

class SliceDimensionsProto(Message):
    start: int
    limit: int
    stride: int
    def __init__(self, *, start: int = ..., limit: int = ..., stride: int = ...) -> None: ...

class PrecisionConfigProto(Message):
    algorithm: int
    operand_precision: Final[RepeatedScalarFieldContainer[int]]
    def __init__(self, *, operand_precision: Iterable[int] = ..., algorithm: int = ...) -> None: ...

class OpMetadataProto(Message):
    op_type: str
    op_name: str
    source_file: str
    source_line: int
    stack_frame_id: int
    def __init__(
        self,
        *,
        op_type: str = ...,
        op_name: str = ...,
        source_file: str = ...,
        source_line: int = ...,
        stack_frame_id: int = ...,
    ) -> None: ...

class FrontendAttributeProto(Message):
    key: str
    value: str
    def __init__(self, *, key: str = ..., value: str = ...) -> None: ...

class FrontendAttributesProto(Message):
    map: Final[RepeatedCompositeFieldContainer[FrontendAttributeProto]]
    def __init__(self, *, map: Iterable[FrontendAttributeProto] = ...) -> None: ...

class InstructionProto(Message):
    name: str
    opcode: str
    parameter_number: int
    fusion_kind: str
    tuple_index: int
    custom_call_target: str
    fft_type: int
    id: int
    backend_config: bytes
    feature_group_count: int
    batch_group_count: int
    is_stable: bool
    comparison_direction: str
    custom_call_has_side_effect: bool
    custom_call_api_version: int
    shape: Final[ShapeProto]
    metadata: Final[OpMetadataProto]
    literal: Final[LiteralProto]
    dimensions: Final[RepeatedScalarFieldContainer[int]]
    window: Final[WindowProto]
    convolution_dimension_numbers: Final[ConvolutionDimensionNumbersProto]
    slice_dimensions: Final[RepeatedCompositeFieldContainer[SliceDimensionsProto]]
    dynamic_slice_sizes: Final[RepeatedScalarFieldContainer[int]]
    padding_config: Final[PaddingConfigProto]
    fft_length: Final[RepeatedScalarFieldContainer[int]]
    dot_dimension_numbers: Final[DotDimensionNumbersProto]
    gather_dimension_numbers: Final[GatherDimensionNumbersProto]
    gather_slice_sizes: Final[RepeatedScalarFieldContainer[int]]
    scatter_dimension_numbers: Final[ScatterDimensionNumbersProto]
    operand_ids: Final[RepeatedScalarFieldContainer[int]]
    control_predecessor_ids: Final[RepeatedScalarFieldContainer[int]]
    called_computation_ids: Final[RepeatedScalarFieldContainer[int]]
    precision_config: Final[PrecisionConfigProto]
    frontend_attributes: Final[FrontendAttributesProto]
    output_operand_aliasing: Final[RepeatedScalarFieldContainer[bytes]]
    def __init__(
        self,
        *,
        name: str = ...,
        opcode: str = ...,
        shape: ShapeProto | None = ...,
        metadata: OpMetadataProto | None = ...,
        literal: LiteralProto | None = ...,
        parameter_number: int = ...,
        fusion_kind: str = ...,
        tuple_index: int = ...,
        dimensions: Iterable[int] = ...,
        window: WindowProto | None = ...,
        convolution_dimension_numbers: ConvolutionDimensionNumbersProto | None = ...,
        slice_dimensions: Iterable[SliceDimensionsProto] = ...,
        dynamic_slice_sizes: Iterable[int] = ...,
        padding_config: PaddingConfigProto | None = ...,
        custom_call_target: str = ...,
        fft_type: int = ...,
        fft_length: Iterable[int] = ...,
        dot_dimension_numbers: DotDimensionNumbersProto | None = ...,
        gather_dimension_numbers: GatherDimensionNumbersProto | None = ...,
        gather_slice_sizes: Iterable[int] = ...,
        scatter_dimension_numbers: ScatterDimensionNumbersProto | None = ...,
        id: int = ...,
        operand_ids: Iterable[int] = ...,
        control_predecessor_ids: Iterable[int] = ...,
        called_computation_ids: Iterable[int] = ...,
        backend_config: bytes = ...,
        feature_group_count: int = ...,
        precision_config: PrecisionConfigProto | None = ...,
        batch_group_count: int = ...,
        is_stable: bool = ...,
        comparison_direction: str = ...,
        frontend_attributes: FrontendAttributesProto | None = ...,
        output_operand_aliasing: Iterable[bytes] = ...,
        custom_call_has_side_effect: bool = ...,
        custom_call_api_version: int = ...,
    ) -> None: ...

class ComputationProto(Message):
    name: str
    id: int
    root_id: int
    is_fusion_computation: bool
    execution_thread: str
    instructions: Final[RepeatedCompositeFieldContainer[InstructionProto]]
    program_shape: Final[ProgramShapeProto]
    def __init__(
        self,
        *,
        name: str = ...,
        instructions: Iterable[InstructionProto] = ...,
        program_shape: ProgramShapeProto | None = ...,
        id: int = ...,
        root_id: int = ...,
        is_fusion_computation: bool = ...,
        execution_thread: str = ...,
    ) -> None: ...

class ProgramShapeProto(Message):
    parameters: Final[RepeatedCompositeFieldContainer[ShapeProto]]
    result: Final[ShapeProto]
    parameter_names: Final[RepeatedScalarFieldContainer[str]]
    def __init__(
        self,
        *,
        parameters: Iterable[ShapeProto] = ...,
        result: ShapeProto | None = ...,
        parameter_names: Iterable[str] = ...,
    ) -> None: ...

class FileLocationProto(Message):
    file_name_id: int
    function_name_id: int
    line: int
    def __init__(self, *, file_name_id: int = ..., function_name_id: int = ..., line: int = ...) -> None: ...

class StackFrameProto(Message):
    file_location_id: int
    parent_frame_id: int
    def __init__(self, *, file_location_id: int = ..., parent_frame_id: int = ...) -> None: ...

class StackFrameIndexProto(Message):
    file_names: Final[RepeatedScalarFieldContainer[str]]
    function_names: Final[RepeatedScalarFieldContainer[str]]
    file_locations: Final[RepeatedCompositeFieldContainer[FileLocationProto]]
    stack_frames: Final[RepeatedCompositeFieldContainer[StackFrameProto]]
    def __init__(
        self,
        *,
        file_names: Iterable[str] = ...,
        function_names: Iterable[str] = ...,
        file_locations: Iterable[FileLocationProto] = ...,
        stack_frames: Iterable[StackFrameProto] = ...,
    ) -> None: ...

class AliasEntryProto(Message):
    parameter_number: int
    output_shape_index: Final[RepeatedScalarFieldContainer[int]]
    parameter_shape_index: Final[RepeatedScalarFieldContainer[int]]
    def __init__(
        self,
        *,
        output_shape_index: Iterable[int] = ...,
        parameter_number: int = ...,
        parameter_shape_index: Iterable[int] = ...,
    ) -> None: ...

class InputOutputAliasProto(Message):
    entries: Final[RepeatedCompositeFieldContainer[AliasEntryProto]]
    def __init__(self, *, entries: Iterable[AliasEntryProto] = ...) -> None: ...

class BufferDonorEntryProto(Message):
    parameter_number: int
    parameter_shape_index: Final[RepeatedScalarFieldContainer[int]]
    def __init__(self, *, parameter_number: int = ..., parameter_shape_index: Iterable[int] = ...) -> None: ...

class BufferDonorProto(Message):
    entries: Final[RepeatedCompositeFieldContainer[BufferDonorEntryProto]]
    def __init__(self, *, entries: Iterable[BufferDonorEntryProto] = ...) -> None: ...

class CrossProgramPrefetchProto(Message):
    parameter: int
    offset: int
    index: Final[RepeatedScalarFieldContainer[int]]
    def __init__(self, *, parameter: int = ..., index: Iterable[int] = ..., offset: int = ...) -> None: ...

class ComputationDeviceProto(Message):
    replica_device_ids: Final[RepeatedScalarFieldContainer[int]]
    def __init__(self, *, replica_device_ids: Iterable[int] = ...) -> None: ...

class DeviceAssignmentProto(Message):
    computation_devices: Final[RepeatedCompositeFieldContainer[ComputationDeviceProto]]
    def __init__(self, *, computation_devices: Iterable[ComputationDeviceProto] = ...) -> None: ...

class ModuleProto(Message):
    name: str
    entry_computation_name: str
    id: int
    entry_computation_id: int
    schedule: bytes
    computations: Final[RepeatedCompositeFieldContainer[ComputationProto]]
    host_program_shape: Final[ProgramShapeProto]
    input_output_alias: Final[InputOutputAliasProto]
    cross_program_prefetches: Final[RepeatedCompositeFieldContainer[CrossProgramPrefetchProto]]
    spmd_parameters_shardings: Final[RepeatedScalarFieldContainer[bytes]]
    device_assignment: Final[DeviceAssignmentProto]
    stack_frame_index: Final[StackFrameIndexProto]
    buffer_donor: Final[BufferDonorProto]
    def __init__(
        self,
        *,
        name: str = ...,
        entry_computation_name: str = ...,
        computations: Iterable[ComputationProto] = ...,
        host_program_shape: ProgramShapeProto | None = ...,
        id: int = ...,
        entry_computation_id: int = ...,
        schedule: bytes = ...,
        input_output_alias: InputOutputAliasProto | None = ...,
        cross_program_prefetches: Iterable[CrossProgramPrefetchProto] = ...,
        spmd_parameters_shardings: Iterable[bytes] = ...,
        device_assignment: DeviceAssignmentProto | None = ...,
        stack_frame_index: StackFrameIndexProto | None = ...,
        buffer_donor: BufferDonorProto | None = ...,
    ) -> None: ...

MODULE_FIELDS: dict[str, int]
INSTRUCTION_FIELDS: dict[str, int]
ELEMENT_TYPES: dict[int, str]
ELEMENT_TYPE_NUMBERS: dict[str, int]
BYTES_PER_ELEMENT: dict[str, int]
CUSTOM_CALL_API_TYPED_FFI: int
