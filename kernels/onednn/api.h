// The part of oneDNN's C interface that we call, declared by ourselves.
//
// The library is opened at run time, so building needs none of its files. These are facts of a stable binary
// interface (every oneDNN 3.x): names, parameters, and the numbers behind the enumerations. A test compares all
// of them with oneDNN's own headers where those are installed (tests/kernels/test_onednn_interface.py).
#ifndef HLO_DISPATCH_ONEDNN_API_H_
#define HLO_DISPATCH_ONEDNN_API_H_

#include <cstddef>
#include <cstdint>

namespace hlo_dispatch::onednn {

// Objects behind handles; only their addresses are known here.
struct Engine;
struct Stream;
struct MemoryDescriptor;
struct Memory;
struct PostOps;
struct PrimitiveAttributes;
struct PrimitiveDescriptor;
struct PrimitiveHandle;

inline constexpr int kMaximumRank = 12;
using Dimensions = int64_t[kMaximumRank];

enum Status : int {
  kSuccess = 0,
  kOutOfMemory = 1,
  kInvalidArguments = 2,
  kUnimplemented = 3,
  kLastImplementationReached = 4,
  kRuntimeError = 5,
  kNotRequired = 6,
};

enum DataType : int { kF16 = 1, kBF16 = 2, kF32 = 3, kS32 = 4, kS8 = 5, kU8 = 6 };
enum EngineKind : int { kCpu = 1 };
enum StreamFlags : int { kInOrder = 1 };
enum PropagationKind : int { kForwardInference = 96 };
enum FormatTag : int { kFormatAny = 1 };
enum FormatKind : int { kFormatBlocked = 2 };
enum ScratchpadMode : int { kScratchpadUser = 1 };
enum FloatMathMode : int { kFloatMathStrict = 0 };

enum Query : int {
  kQueryImplementation = 8,
  kQueryStrides = 14,
  kQueryScratchpad = 136,
  kQueryArgument = 255,
  kQueryRank = 256,
  kQueryPaddedSizes = 260,
  kQueryFormatKind = 262,
  kQueryInnerBlockCount = 263,
  kQueryInnerBlockSizes = 264,
  kQueryInnerBlockDimensions = 265,
};

enum Algorithm : int {
  kConvolutionDirect = 1,
  kPoolingMax = 0x1ff,
  kPoolingAverageIncludingPadding = 0x2ff,
  kDeconvolutionDirect = 0xa,
  kEltwiseRelu = 0x20,
  kEltwiseTanh,
  kEltwiseElu,
  kEltwiseSquare,
  kEltwiseAbs,
  kEltwiseSqrt,
  kEltwiseLinear,
  kEltwiseSoftRelu,
  kEltwiseHardSigmoid,
  kEltwiseLogistic,
  kEltwiseExp,
  kEltwiseGeluTanh,
  kEltwiseSwish,
  kEltwiseLog,
  kEltwiseClip,
  kEltwiseClipV2,
  kEltwisePow,
  kEltwiseGeluErf,
  kEltwiseRound,
  kEltwiseMish,
  kEltwiseHardSwish,
  kBinaryAdd = 0x1fff0,
  kBinaryMul,
  kBinaryMax,
  kBinaryMin,
  kBinaryDiv,
  kBinarySub,
  kBinaryGe,
  kBinaryGt,
  kBinaryLe,
  kBinaryLt,
  kBinaryEq,
  kBinaryNe,
};

// Which operand of a primitive a memory object is. The second operand of binary post-op number i is
// kArgumentBinaryOperand plus i + 1 times a step that grew from 16384 to 32768 within 3.x (see post_ops.cc).
enum ArgumentIndex : int {
  kArgumentSource = 1,
  kArgumentDestination = 17,
  kArgumentWeights = 33,
  kArgumentBias = 41,
  kArgumentScratchpad = 80,
  kArgumentSourceGradient = 129,
  kArgumentDestinationGradient = 145,
  kArgumentWeightsGradient = 161,
  kArgumentBinaryOperand = 2,
  kArgumentSources = 1024,  // the first of many
};

struct Version {
  int major;
  int minor;
  int patch;
  const char* hash;
  unsigned cpu_runtime;
  unsigned gpu_runtime;
};

struct Argument {
  int index;
  Memory* memory;
};

// X(return type, name without dnnl_, parameters): the single list from which the function table is made.
#define HLO_DISPATCH_ONEDNN_FUNCTIONS(X)                                                                               \
  X(const Version*, version, ())                                                                                       \
  X(Status, engine_create, (Engine**, EngineKind, size_t))                                                             \
  X(Status, stream_create, (Stream**, Engine*, unsigned))                                                              \
  X(Status, stream_wait, (Stream*))                                                                                    \
  X(Status, memory_desc_create_with_strides, (MemoryDescriptor**, int, const int64_t*, DataType, const int64_t*))      \
  X(Status, memory_desc_create_with_tag, (MemoryDescriptor**, int, const int64_t*, DataType, FormatTag))               \
  X(Status, memory_desc_destroy, (MemoryDescriptor*))                                                                  \
  X(size_t, memory_desc_get_size, (const MemoryDescriptor*))                                                           \
  X(Status, memory_desc_query, (const MemoryDescriptor*, Query, void*))                                                \
  X(int, memory_desc_equal, (const MemoryDescriptor*, const MemoryDescriptor*))                                        \
  X(Status, memory_create, (Memory**, const MemoryDescriptor*, Engine*, void*))                                        \
  X(Status, memory_set_data_handle, (Memory*, void*))                                                                  \
  X(Status, memory_destroy, (Memory*))                                                                                 \
  X(Status, post_ops_create, (PostOps**))                                                                              \
  X(Status, post_ops_append_eltwise, (PostOps*, Algorithm, float, float))                                              \
  X(Status, post_ops_append_binary, (PostOps*, Algorithm, const MemoryDescriptor*))                                    \
  X(Status, post_ops_append_sum, (PostOps*, float, int32_t, int))                                                      \
  X(Status, post_ops_destroy, (PostOps*))                                                                              \
  X(Status, primitive_attr_create, (PrimitiveAttributes**))                                                            \
  X(Status, primitive_attr_set_post_ops, (PrimitiveAttributes*, const PostOps*))                                       \
  X(Status, primitive_attr_set_scratchpad_mode, (PrimitiveAttributes*, ScratchpadMode))                                \
  X(Status, primitive_attr_set_fpmath_mode, (PrimitiveAttributes*, FloatMathMode))                                     \
  X(Status, primitive_attr_destroy, (PrimitiveAttributes*))                                                            \
  X(Status, convolution_forward_primitive_desc_create,                                                                 \
    (PrimitiveDescriptor**, Engine*, PropagationKind, Algorithm, const MemoryDescriptor*, const MemoryDescriptor*,     \
     const MemoryDescriptor*, const MemoryDescriptor*, const int64_t*, const int64_t*, const int64_t*, const int64_t*, \
     const PrimitiveAttributes*))                                                                                      \
  X(Status, convolution_backward_data_primitive_desc_create,                                                           \
    (PrimitiveDescriptor**, Engine*, Algorithm, const MemoryDescriptor*, const MemoryDescriptor*,                      \
     const MemoryDescriptor*, const int64_t*, const int64_t*, const int64_t*, const int64_t*,                          \
     const PrimitiveDescriptor*, const PrimitiveAttributes*))                                                          \
  X(Status, convolution_backward_weights_primitive_desc_create,                                                        \
    (PrimitiveDescriptor**, Engine*, Algorithm, const MemoryDescriptor*, const MemoryDescriptor*,                      \
     const MemoryDescriptor*, const MemoryDescriptor*, const int64_t*, const int64_t*, const int64_t*, const int64_t*, \
     const PrimitiveDescriptor*, const PrimitiveAttributes*))                                                          \
  X(Status, deconvolution_forward_primitive_desc_create,                                                               \
    (PrimitiveDescriptor**, Engine*, PropagationKind, Algorithm, const MemoryDescriptor*, const MemoryDescriptor*,     \
     const MemoryDescriptor*, const MemoryDescriptor*, const int64_t*, const int64_t*, const int64_t*, const int64_t*, \
     const PrimitiveAttributes*))                                                                                      \
  X(Status, matmul_primitive_desc_create,                                                                              \
    (PrimitiveDescriptor**, Engine*, const MemoryDescriptor*, const MemoryDescriptor*, const MemoryDescriptor*,        \
     const MemoryDescriptor*, const PrimitiveAttributes*))                                                             \
  X(Status, pooling_forward_primitive_desc_create,                                                                     \
    (PrimitiveDescriptor**, Engine*, PropagationKind, Algorithm, const MemoryDescriptor*, const MemoryDescriptor*,     \
     const int64_t*, const int64_t*, const int64_t*, const int64_t*, const int64_t*, const PrimitiveAttributes*))      \
  X(Status, reorder_primitive_desc_create,                                                                             \
    (PrimitiveDescriptor**, const MemoryDescriptor*, Engine*, const MemoryDescriptor*, Engine*,                        \
     const PrimitiveAttributes*))                                                                                      \
  X(Status, primitive_desc_query, (const PrimitiveDescriptor*, Query, int, void*))                                     \
  X(const MemoryDescriptor*, primitive_desc_query_md, (const PrimitiveDescriptor*, Query, int))                        \
  X(Status, primitive_desc_next_impl, (PrimitiveDescriptor*))                                                          \
  X(Status, primitive_desc_destroy, (PrimitiveDescriptor*))                                                            \
  X(Status, primitive_create, (PrimitiveHandle**, const PrimitiveDescriptor*))                                         \
  X(Status, primitive_execute, (const PrimitiveHandle*, Stream*, int, const Argument*))                                \
  X(Status, primitive_destroy, (PrimitiveHandle*))

// The function table: one pointer per function, filled by Library::Load.
struct Functions {
#define HLO_DISPATCH_FUNCTION_MEMBER(result, name, parameters) result(*name) parameters = nullptr;
  HLO_DISPATCH_ONEDNN_FUNCTIONS(HLO_DISPATCH_FUNCTION_MEMBER)
#undef HLO_DISPATCH_FUNCTION_MEMBER
};

}  // namespace hlo_dispatch::onednn

#endif  // HLO_DISPATCH_ONEDNN_API_H_
